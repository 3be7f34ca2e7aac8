"""What `make demo` runs: training on four ranks, checked against one process, and then what goes wrong on purpose.

    python examples/demo.py

Needs nothing but this machine. The exit status is 0 only if the four ranks and the single process agree.
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from hocket.cli.app import app
from hocket.protocol.errors import HocketError

HERE = Path(__file__).resolve().parent
LIMIT_S = 120
"""`hocket run` ends the ranks after this time, and the demonstration with them."""
PARTS = (
    ("Two hosts are emulated, each with a worker and two ranks.", 4, 2, "digits.py"),
    ("A rank is wrong, late, and gone. The others hear of it at once.", 3, 1, "outcomes.py"),
)


def main() -> int:
    """Runs all parts. Returns the exit status of the first that fails."""
    begun = time.monotonic()
    for title, ranks, hosts, program in PARTS:
        options = ["-n", str(ranks), *(["--hosts", str(hosts)] if hosts > 1 else [])]
        print(f"\n{title}\n\n$ hocket run {' '.join(options)} python examples/{program}\n", flush=True)
        status = run(options, program)
        if status:
            print(f"\nexamples/{program} ended with {status}", file=sys.stderr)
            return status
    print(f"\nAll done, in {time.monotonic() - begun:.0f} s. More of it is in examples/ and docs/.")
    return 0


def run(options: list[str], program: str) -> int:
    """Runs one program as several ranks and shows what they print; as soon as they are there, where they are, too."""
    port = free_port()
    own = ["--no-prefix", "--timeout", str(LIMIT_S), "--http", str(port)]
    command = [sys.executable, "-m", "hocket.cli", "run", *options, *own, sys.executable, str(HERE / program)]
    # One thread for each rank's arithmetic: they share this machine's cores.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("HOCKET_WORKER", None)  # a service of our own
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        looked = program != "digits.py"
        for line in child.stdout:
            print(line, end="", flush=True)
            if not looked and not line.strip():  # all ranks are there, and begin to train
                looked = True
                look(port)
    return child.returncode


def look(port: int) -> None:
    """What ``hocket workers`` and ``hocket group world`` show while the ranks are at it."""
    for words in (["workers"], ["group", "world"]):
        print(f"$ hocket {' '.join(words)}\n")
        try:
            app([*words, "--http", f"127.0.0.1:{port}"], standalone_mode=False)
        except HocketError as error:
            print(f"hocket: {error}")
        print(flush=True)


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
