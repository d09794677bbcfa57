"""The command line's entry: where an extra is not installed it says which, since engines install the client alone."""

import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]

# sysexits.h: EX_CONFIG; `kvledgerd.exits` itself needs the extra
_CONFIG = 78


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; for one that Ctrl-C ends that is the code shells have for it."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _run(arguments: Sequence[str] | None) -> int:
    try:
        from kvledgerd.commands.table import run  # noqa: PLC0415 - what it imports may not be installed
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("kvledger"):
            raise
        why = f"the extra [daemon] is missing: there is no {error.name}"
        sys.stderr.write(f"kvledger: {why} (pip install 'kvledger[daemon]')\n")
        return _CONFIG
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
