"""``kvledger check``: replay a data directory and check that every invariant holds in the state that it makes."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kvledgerd.audit.replay import replay_all
from kvledgerd.commands.output import say, say_json
from kvledgerd.commands.places import add_data
from kvledgerd.core.invariants import violations
from kvledgerd.exits import Exit

if TYPE_CHECKING:
    from kvledgerd.commands.serve import Subparsers

__all__ = ["add"]


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("check", help="check every invariant, offline", description=__doc__)
    add_data(parser)
    parser.add_argument("--json", action="store_true", help="for programs: the last line is one JSON object")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    state, seq = replay_all(Path(arguments.data))
    found = violations(state)
    digest = f"{state.digest():016x}"
    if arguments.json:
        say_json({"ok": not found, "seq": seq, "digest": digest, "objects": state.objects, "violations": found})
    else:
        say(f"{'ok' if not found else 'VIOLATED'}: seq {seq}, digest {digest}, {state.objects} objects")
        for text in found:
            say(f"  {text}")
    return Exit.DONE if not found else Exit.DAMAGED
