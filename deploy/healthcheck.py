"""Whether the hocket service of this container is well, for Docker's HEALTHCHECK: exit status 0, or 1 and a sentence.

A coordinator is well when it answers ``/healthz``, a worker when it lets a client in at its socket. What runs is told
by the first process; settings given by option rather than by environment are not seen here.
"""

import asyncio
import os
import sys
import urllib.request
from pathlib import Path

from hocket.protocol.addresses import Address
from hocket.protocol.doorway import dial
from hocket.protocol.errors import HocketError
from hocket.protocol.handshake import introduce

LIMIT_S = 3.0


def check_coordinator() -> None:
    """Raises `OSError` where it does not answer."""
    host = os.environ.get("HOCKET_HTTP_HOST", "127.0.0.1")
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    port = os.environ.get("HOCKET_HTTP_PORT", "7421")
    with urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=LIMIT_S):
        pass


async def check_worker() -> None:
    """Raises `HocketError` or `TimeoutError` where nobody lets us in."""
    async with asyncio.timeout(LIMIT_S):
        connection = await dial(Address(path=os.environ["HOCKET_SOCKET"]), "HOCKET_SOCKET", LIMIT_S)
        await introduce(connection, "client", "", b"")
        connection.close()


def main(first_process: Path = Path("/proc/1/cmdline")) -> int:
    """Returns the exit status. Something else than a service, such as a rank, is well as long as it runs."""
    arguments = first_process.read_bytes().decode(errors="replace").split("\0")
    try:
        if "coordinator" in arguments:
            check_coordinator()
        elif "worker" in arguments:
            asyncio.run(check_worker())
    except (OSError, HocketError) as broken:
        print(broken)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
