"""Arguments of several commands: data directory and socket, as the settings name them, kinds, hashes and numbers."""

import argparse
from typing import TYPE_CHECKING

from kvledger.kinds import Kind
from kvledgerd.settings.table import Config
from kvledgerd.sizes import parse_bytes

if TYPE_CHECKING:
    # argparse has no public name for what add_subparsers returns.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001  as above

__all__ = [
    "add_data",
    "add_json",
    "add_socket",
    "add_tenant",
    "count",
    "decimal",
    "hexadecimal",
    "kind_named",
    "number",
    "size",
]


def add_data(parser: argparse.ArgumentParser) -> None:
    """Let a command take the data directory."""
    default = Config().data_dir
    parser.add_argument("--data", default=default, metavar="DIR", help=f"data directory (default {default})")


def add_socket(parser: argparse.ArgumentParser) -> None:
    """Let a command take the daemon's socket."""
    default = Config().socket
    parser.add_argument("--socket", default=default, metavar="PATH", help=f"the daemon's socket (default {default})")


def add_tenant(parser: argparse.ArgumentParser) -> None:
    """Let a command of operators say whose cache it is about."""
    parser.add_argument("--tenant", default="", metavar="NAME", help="whose cache it is about, for operators")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Let a command answer programs."""
    parser.add_argument("--json", action="store_true", help="for programs: the last line is one JSON object")


def hexadecimal(text: str) -> bytes:
    """Return the bytes of a digest or hash, or of its beginning."""
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is not an even number of hexadecimal digits") from error


def kind_named(text: str) -> Kind:
    """Return the kind of that name, in any spelling."""
    if text.upper() not in Kind.__members__:
        raise argparse.ArgumentTypeError(f"{text} is no kind; there are {', '.join(kind.name for kind in Kind)}")
    return Kind[text.upper()]


def number(text: str) -> int:
    """Return a whole number from 0 on, no larger than any in the log."""
    try:
        found = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is no whole number") from error
    if not 0 <= found < 1 << 63:
        raise argparse.ArgumentTypeError(f"{text} is {'less than 0' if found < 0 else 'of more than 63 bits'}")
    return found


def count(text: str) -> int:
    """Return a whole number from 1 on."""
    found = number(text)
    if not found:
        raise argparse.ArgumentTypeError("0 are too few; name at least 1")
    return found


def decimal(text: str) -> float:
    """Return a number that may have a fraction."""
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is no number") from error


def size(text: str) -> int:
    """Return a number of bytes that may be written with a unit."""
    try:
        found = parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is no number of bytes such as 64MiB") from error
    if found < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return found
