"""``kvledger serve``: run the cache. The keeper holds socket and arenas, the daemon under it does everything else."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvledger.errors import KVLedgerError
from kvledgerd.commands.page import require_page
from kvledgerd.exits import Exit
from kvledgerd.keeper.keeper import run as keep
from kvledgerd.keeper.policy import RestartPolicy
from kvledgerd.settings import loading
from kvledgerd.settings.table import Config
from kvledgerd.sizes import short_bytes

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add", "main_daemon", "run"]

_OPTIONS = {"data": "data_dir", "socket": "socket", "memory": "memory_bytes", "http": "http"}


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("serve", help="run the cache", description=__doc__)
    _add_options(parser)
    parser.add_argument("--no-keeper", action="store_true", help="run without a keeper: memory ends with the daemon")
    parser.add_argument("--print-config", action="store_true", help="show all settings as TOML and end")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the keeper with the daemon under it, or the daemon alone; returns the exit code."""
    try:
        config = _load(arguments)
        if arguments.print_config:
            sys.stdout.write(loading.render(config))
            return Exit.DONE
        if arguments.no_keeper:
            return _daemon(config, arguments)
        policy = RestartPolicy(longest_s=config.restart_seconds)
        return keep([sys.executable, "-m", "kvledgerd", *_options(arguments)], config.listening, policy=policy)
    except KVLedgerError as error:
        sys.stderr.write(f"kvledger serve: {error}\n")
        return Exit.CONFIG


def main_daemon(arguments: Sequence[str]) -> int:
    """Run the daemon alone, from the options that `serve` takes."""
    parser = argparse.ArgumentParser(prog="python -m kvledgerd", description="The daemon without its keeper.")
    _add_options(parser)
    try:
        found = parser.parse_args(arguments)
        return _daemon(_load(found), found)
    except KVLedgerError as error:
        sys.stderr.write(f"kvledgerd: {error}\n")
        return Exit.CONFIG


def _daemon(config: Config, arguments: argparse.Namespace) -> int:
    from kvledgerd.life.daemon import run as run_daemon  # noqa: PLC0415  the keeper stays small

    return run_daemon(config, lambda: _load(arguments))


def _add_options(parser: argparse.ArgumentParser) -> None:
    default = Config()
    why = f"data directory (default {default.data_dir})"
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    parser.add_argument("--data", type=Path, metavar="DIR", help=why)
    why = f"Unix socket to listen at (default {default.socket})"
    parser.add_argument("--socket", type=Path, metavar="PATH", help=why)
    why = f"shared memory for the cache, for example 4GiB (default {short_bytes(default.memory_bytes)})"
    parser.add_argument("--memory", metavar="SIZE", help=why)
    parser.add_argument(
        "--http", metavar="ADDRESS:PORT|PATH", help="serve a page for browsers, on loopback or at a Unix socket"
    )
    parser.add_argument(
        "--on-corrupt",
        choices=("hold", "exit", "quarantine"),
        help="what to do about a damaged log: hold the memory and serve nothing (the default), end with 65, "
        "or set it aside and begin a new one",
    )


def _load(arguments: argparse.Namespace) -> Config:
    said = {name: getattr(arguments, option) for option, name in _OPTIONS.items()}
    if arguments.on_corrupt is not None:
        said["quarantine_log"] = str(arguments.on_corrupt == "quarantine")
        said["exit_on_damage"] = str(arguments.on_corrupt == "exit")
    config = loading.load(
        arguments.config, overrides={name: value for name, value in said.items() if value is not None}
    )
    if config.http:
        require_page()
    return config


def _options(arguments: argparse.Namespace) -> list[str]:
    said = {option: getattr(arguments, option) for option in ("config", *_OPTIONS)}
    said["on-corrupt"] = arguments.on_corrupt
    return [word for option, value in said.items() if value is not None for word in (f"--{option}", str(value))]
