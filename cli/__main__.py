"""``python -m hocket.cli``, which is also the console script ``hocket``."""

import importlib
import signal
import sys
from collections.abc import Sequence

from hocket.protocol.errors import HocketError

DAEMONS = ("coordinator", "worker")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. Returns its exit status, or raises `SystemExit` with it.

    The daemons are handed their arguments as they are, and load nothing that only people at a terminal need.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and given[0] in DAEMONS:
            return int(importlib.import_module(f"hocket.{given[0]}.__main__").main(given[1:]))
        app = importlib.import_module("hocket.cli.app").app
        app(given, prog_name="hocket")
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except HocketError as error:
        print(f"hocket: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as missing:
        if (missing.name or "hocket").startswith("hocket"):
            raise
        print(f"hocket: no module {missing.name!r}: the command line needs hocket[server]", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
