"""``python -m kvledgerd.keeper --socket PATH -- COMMAND...``: keep any program that speaks the notify protocol."""

import argparse
import sys
from pathlib import Path

from kvledgerd.keeper.keeper import run
from kvledgerd.keeper.listener import SOCKET_NAME, ListenError, Listening


def main() -> int:
    """Return the exit code: the daemon's, or 78 if the socket can not be bound."""
    parser = argparse.ArgumentParser(
        prog="python -m kvledgerd.keeper", description="Keep a daemon and its descriptors."
    )
    parser.add_argument("--socket", type=Path, required=True, help="path of the listening Unix socket")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="the daemon and its arguments, after --")
    arguments = parser.parse_args()
    try:
        return run(arguments.command, [Listening(SOCKET_NAME, arguments.socket)])
    except ListenError as error:
        sys.stderr.write(f"kvledger keeper: {error}\n")
        return 78


if __name__ == "__main__":
    sys.exit(main())
