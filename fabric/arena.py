"""Shared memory without a name: a sealed memfd, mapped by whoever is handed its descriptor."""

import fcntl
import mmap
import os

from hocket.protocol.errors import WireError

PAGE_NBYTES = 4096


class Arena:
    """A mapping of ``nbytes`` shared bytes. Pages cost memory only once they are touched.

    The size is sealed, so that no other holder can shrink it and kill us by SIGBUS. The mapping lives as long as any
    view of it does; `close` gives up this handle.
    """

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        """for handing on; -1 where the memory came from elsewhere"""
        self.nbytes = nbytes
        self._map: mmap.mmap | None = mmap.mmap(fd, nbytes)

    @classmethod
    def create(cls, name: str, nbytes: int) -> "Arena":
        """Fresh zeroed memory, rounded up to whole pages."""
        nbytes = -(-nbytes // PAGE_NBYTES) * PAGE_NBYTES
        fd = os.memfd_create(f"hocket-{name}"[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, nbytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            return cls(fd, nbytes)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def attach(cls, fd: int) -> "Arena":
        """Maps memory that came from elsewhere and closes ``fd``. Raises `WireError` where it is not sealed."""
        try:
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
            if not seals & fcntl.F_SEAL_SHRINK:
                raise WireError("shared memory that could shrink is not mapped")
            arena = cls(fd, os.fstat(fd).st_size)
        except OSError as broken:
            raise WireError(f"not shared memory: {broken.strerror}") from broken
        finally:
            os.close(fd)
        arena.fd = -1
        return arena

    @property
    def buffer(self) -> mmap.mmap:
        """The memory, for views to be taken of."""
        assert self._map is not None, "the arena is closed"
        return self._map

    def close(self) -> None:
        """Closes the descriptor. Views that are still held keep the memory itself."""
        if self._map is not None:
            self._map = None
            if self.fd >= 0:
                os.close(self.fd)
