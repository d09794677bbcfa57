"""Where commands look: the data directory and the socket, as the settings name them."""

import argparse

from kvledgerd.settings import Config

__all__ = ["add_data", "add_socket"]


def add_data(parser: argparse.ArgumentParser) -> None:
    """Let a command take the data directory."""
    default = Config().data_dir
    parser.add_argument("--data", default=default, metavar="DIR", help=f"data directory (default {default})")


def add_socket(parser: argparse.ArgumentParser) -> None:
    """Let a command take the daemon's socket."""
    default = Config().socket
    parser.add_argument("--socket", default=default, metavar="PATH", help=f"the daemon's socket (default {default})")
