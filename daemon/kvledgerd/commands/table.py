"""The table of commands and the parser made from it; each command is a module of `kvledgerd.commands`."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from itertools import takewhile
from typing import NoReturn

from kvledger.errors import KVLedgerError
from kvledger_storage.events import EventError
from kvledger_storage.log import LogError
from kvledgerd import logs
from kvledgerd.commands import (
    audit,
    bench,
    check,
    demo,
    disk,
    epoch,
    evict,
    explain,
    export,
    health,
    layout,
    log,
    metrics,
    page,
    quota,
    serve,
    status,
    tenants,
    top,
    trace,
    warm,
)
from kvledgerd.exits import Exit, exit_of

__all__ = ["command_line", "run"]

_WRONG_NAMES = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)

_COMMANDS = (
    serve,
    status,
    tenants,
    health,
    top,
    metrics,
    page,
    demo,
    explain,
    audit,
    layout,
    epoch,
    log,
    check,
    export,
    disk,
    quota,
    evict,
    warm,
    bench,
    trace,
)


class _Parser(argparse.ArgumentParser):
    """A parser whose help quotes as a terminal does: descriptions are docstrings, which double the quotes.

    It ends with the code that a service manager is told not to start again after.
    """

    def format_help(self) -> str:
        return super().format_help().replace("``", "`")

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.USAGE, f"{self.prog}: error: {message}\n")


def command_line() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser: argparse.ArgumentParser = _Parser(
        prog="kvledger", description="The authority over the KV cache of one node."
    )
    parser.add_argument("--version", action="version", version=f"kvledger {version('kvledger')}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(subparsers)
    return parser


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = command_line()
    words = sys.argv[1:] if arguments is None else arguments
    found, unknown = parser.parse_known_args(words)
    if unknown:
        typed = " ".join(("kvledger", *takewhile(lambda word: not word.startswith("-"), words)))
        parser.exit(Exit.USAGE, f"{typed}: unknown here: {' '.join(unknown)} ({typed} --help lists what there is)\n")
    # What a command prints to stdout may be read by a program.
    logs.configure(json=False, level=logging.WARNING)
    try:
        code: int = found.run(found)
    except BrokenPipeError:
        # Who reads has seen enough; the interpreter must not try to flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    except (KVLedgerError, LogError, EventError, OSError) as error:
        sys.stderr.write(f"kvledger: {_said(error)}\n")
        return exit_of(error)
    return code


def _said(error: Exception) -> str:
    """Return what went wrong in words; of a file the system's own text begins with the number of an error."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)
    remedy = " (name one that is there and that you may use)" if isinstance(error, _WRONG_NAMES) else ""
    return f"{error.filename}: {error.strerror}{remedy}"
