"""The command line: a parser, and the table of commands; each command is a module of `kvledgerd.commands`."""

import argparse
import sys
from collections.abc import Sequence

from kvledgerd.commands import serve

__all__ = ["main"]

_COMMANDS = (serve,)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(prog="kvledger", description="The authority over the KV cache of one node.")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(subparsers)
    found = parser.parse_args(arguments)
    code: int = found.run(found)
    return code


if __name__ == "__main__":
    sys.exit(main())
