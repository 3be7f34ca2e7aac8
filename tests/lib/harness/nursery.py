"""A process that has imported what ranks need and forks one whenever a test asks: a start costs 20 ms, not a second.

The test's side is `born`, which gives something like a `subprocess.Popen`. The other side is this file as a program; it
has no threads and no clients of its own, so that forking is safe.
"""

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

MESSAGE_NBYTES = 1 << 16


@dataclass(eq=False)
class Child:
    """A rank that was forked elsewhere, with the part of `subprocess.Popen` that tests need."""

    pid: int
    stdin: IO[str]
    stdout: IO[str]
    stderr: IO[str]
    news: threading.Condition
    statuses: dict[int, int] = field(repr=False)

    def poll(self) -> int | None:
        """Its exit status, None while it runs; negative for a signal."""
        with self.news:
            return self.statuses.get(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the exit status."""
        with self.news:
            if not self.news.wait_for(lambda: self.pid in self.statuses, timeout):
                raise subprocess.TimeoutExpired(f"rank {self.pid}", timeout or 0.0)
            return self.statuses[self.pid]

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)


class _Nursery:
    def __init__(self, env: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "harness.nursery", str(theirs.fileno())]
        self._process = subprocess.Popen(command, env=dict(env), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self._news = threading.Condition()
        self._statuses: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._asked = 0
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self.close)

    def _listen(self) -> None:
        while data := self._socket.recv(MESSAGE_NBYTES):
            said = json.loads(data)
            with self._news:
                if "status" in said:
                    self._statuses[said["pid"]] = said["status"]
                else:
                    self._pids[said["number"]] = said["pid"]
                    self._statuses.pop(said["pid"], None)
                self._news.notify_all()

    def born(self, path: str, name: str, env: Mapping[str, str], cwd: str) -> Child:
        ours, theirs = zip(*(os.pipe()[:: 1 if end else -1] for end in (0, 1, 1)), strict=True)
        with self._news:
            self._asked += 1
            number = self._asked
            asked = json.dumps({"number": number, "path": path, "name": name, "env": dict(env), "cwd": cwd})
            socket.send_fds(self._socket, [asked.encode()], theirs)
            for fd in theirs:
                os.close(fd)
            assert self._news.wait_for(lambda: number in self._pids, 20.0), "the nursery does not answer"
            pid = self._pids.pop(number)
        stdin = os.fdopen(ours[0], "w", buffering=1)
        return Child(pid, stdin, os.fdopen(ours[1]), os.fdopen(ours[2]), self._news, self._statuses)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._process.wait(5.0)


_nursery: list[_Nursery] = []


def born(path: str, name: str, env: Mapping[str, str], cwd: str) -> Child:
    """Starts function ``name`` of the file ``path`` as a rank in this environment."""
    if not _nursery:
        _nursery.append(_Nursery(env))
    return _nursery[0].born(path, name, env, cwd)


# --- the nursery itself ----------------------------------------------------------------------------------------------


def _care(parent: socket.socket) -> dict[str, Any] | None:
    """Forks whenever it is asked to. Returns None at the end, and in each child what it is to do."""
    children: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(parent, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not parent:
                    pid = key.data
                    selector.unregister(key.fileobj)
                    os.close(children.pop(pid))
                    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    parent.send(json.dumps({"pid": pid, "status": status}).encode())
                    continue
                data, fds, _, _ = socket.recv_fds(parent, MESSAGE_NBYTES, 3)
                if not data:
                    return None
                asked: dict[str, Any] = json.loads(data)
                pid = os.fork()
                if pid == 0:
                    for target, fd in enumerate(fds):
                        os.dup2(fd, target)
                        os.close(fd)
                    for fd in children.values():
                        os.close(fd)
                    return asked
                for fd in fds:
                    os.close(fd)
                children[pid] = os.pidfd_open(pid)
                selector.register(children[pid], selectors.EVENT_READ, pid)
                parent.send(json.dumps({"number": asked["number"], "pid": pid}).encode())


def _main() -> int:
    from harness.processes import run_body

    import hocket.client.client  # what ranks use, imported once for all of them
    import hocket.client.sync

    assert hocket.client.client and hocket.client.sync
    parent = socket.socket(fileno=int(sys.argv[1]))
    asked = _care(parent)
    parent.close()
    if asked is None:
        return 0
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    return run_body(asked["path"], asked["name"])


if __name__ == "__main__":
    sys.exit(_main())
