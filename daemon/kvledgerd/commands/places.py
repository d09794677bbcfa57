"""What several commands are told: the data directory and the socket, as the settings name them, kinds and hashes."""

import argparse

from kvledger.kinds import Kind
from kvledgerd.settings import Config

__all__ = ["add_data", "add_socket", "add_tenant", "hexadecimal", "kind_named"]


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
