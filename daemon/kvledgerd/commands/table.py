"""The table of commands and the parser made from it; each command is a module of `kvledgerd.commands`."""

import argparse
import sys
from collections.abc import Sequence

from kvledger.errors import KVLedgerError
from kvledger_storage.events import EventError
from kvledger_storage.log import LogError
from kvledgerd.commands import audit, bench, check, demo, explain, log, serve
from kvledgerd.exits import exit_of

__all__ = ["run"]

_COMMANDS = (serve, demo, explain, audit, log, check, bench)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(prog="kvledger", description="The authority over the KV cache of one node.")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(subparsers)
    found = parser.parse_args(arguments)
    try:
        code: int = found.run(found)
    except (KVLedgerError, LogError, EventError, OSError) as error:
        sys.stderr.write(f"kvledger: {error}\n")
        return exit_of(error)
    return code
