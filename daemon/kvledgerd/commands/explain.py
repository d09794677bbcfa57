"""``kvledger explain``: a verdict as a table. Each group is a row, boundaries go across, and the cuts stand below."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kvledger.counts import counted
from kvledger.verdict import Layer
from kvledgerd.audit.explanation import BoundaryView, Explanation, explain, latest_misses
from kvledgerd.audit.replay import Damage
from kvledgerd.commands.arguments import add_data, add_json, count, number
from kvledgerd.commands.damage import end_of
from kvledgerd.output import aligned, moment, say, say_json

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add", "render"]

SHOWN = 7
"""Boundaries across a page."""
_HELD = {"kept": "bold green", "chosen": "bold green", "offered": "green"}
_STYLES = {"memory": "green", "device": "green", "disk": "yellow", "approx": "yellow", "replay": "yellow"} | _HELD
_WRONG = {"missing": "bold red", "damaged": "bold red", "foreign": "red"}


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("explain", help="why a look-up was a hit or a miss", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seq", type=number, metavar="N", help="the look-up of this event; `audit why` lists them")
    which.add_argument("--last", type=count, nargs="?", const=1, default=1, metavar="N", help="the latest N misses")
    add_data(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    data = Path(arguments.data)
    damage: Damage = []
    seqs = [arguments.seq] if arguments.seq is not None else latest_misses(data, arguments.last, damage)
    found = explain(data, seqs, damage)
    if arguments.json:
        say_json({"explanations": found})
        return end_of(damage)
    for index, one in enumerate(found):
        if index:
            say()
        _show(one)
    return end_of(damage)


def _show(one: Explanation) -> None:
    if not sys.stdout.isatty():
        say(render(one))
        return
    from rich.console import Console  # noqa: PLC0415  costs 50 ms that other commands need not pay
    from rich.table import Table  # noqa: PLC0415  as above
    from rich.text import Text  # noqa: PLC0415  as above

    head, columns, rows, foot = _parts(one)
    drawn = Table(*columns)
    for row in rows:
        drawn.add_row(*(Text(word, style=_style(word)) for word in row))
    console = Console(highlight=False)
    for line in head:
        console.print(line, markup=False)
    console.print(drawn)
    for line in foot:
        console.print(line, markup=False)


def _style(word: str) -> str:
    return (_STYLES | _WRONG).get(word, "red" if word.startswith("layer") else "")


def render(one: Explanation) -> str:
    """Return an explanation as plain text."""
    head, columns, rows, foot = _parts(one)
    return "\n".join(line.rstrip() for line in (*head, "", *aligned(columns, rows), "", *foot))


def _parts(one: Explanation) -> tuple[list[str], list[str], list[list[str]], list[str]]:
    """Return the lines above the table, its columns and rows, and the lines below."""
    first, last = _window(one.boundaries)
    shown = one.boundaries[first:last]
    who = f"engine {one.engine}" + (f" ({one.engine_name})" if one.engine_name else "")
    head = [
        f"event {one.seq}, {moment(one.time_ms)} UTC: {who} asked for {counted(one.tokens, 'token')} of {one.model}",
        f"A plain hash cache would have claimed {counted(one.hash_tokens, 'token')}; {one.usable_tokens} are usable"
        + (f" (lease {one.lease})." if one.lease else "."),
    ]
    columns = ["group", "kind", *(f"{b.position}{'*' if b.residue else ''}" for b in shown)]
    rows = [[g.name, g.kind, *g.places[first:last]] for g in one.groups]
    rows.append(["verdict", "", *(_outcome(b) for b in shown)])
    if any(b.prefix for b in shown):
        rows.append(["prefix", "", *(b.prefix for b in shown)])
    if any(b.code for b in shown):
        rows.append(["cut by", "", *(b.code for b in shown)])
    return head, columns, rows, _foot(one, first, last, shown)


def _outcome(boundary: BoundaryView) -> str:
    return f"layer {boundary.layer}" if boundary.layer else boundary.outcome


def _foot(one: Explanation, first: int, last: int, shown: list[BoundaryView]) -> list[str]:
    foot = [str(cut) for cut in one.cuts] or ["Nothing was cut."]
    foot += [f"and {one.cuts_more} more cuts"] if one.cuts_more else []
    if first or last < len(one.boundaries):
        before = counted(first, "boundary", "boundaries")
        foot.append(
            f"{before} before and {len(one.boundaries) - last} behind these are not shown; --json has all of them."
        )
    if any(b.residue for b in shown):
        foot.append("* lies inside a block: it counts only for a prompt that has the same tokens there.")
    layers = dict.fromkeys(b.layer for b in shown if b.layer)
    if layers:
        foot.append("Layers: " + ", ".join(f"{n} {Layer(n).name}" for n in sorted(layers)) + ".")
    return foot


def _window(boundaries: list[BoundaryView]) -> tuple[int, int]:
    """Return the range of boundaries to show: around the first one behind the best that was cut."""
    if len(boundaries) <= SHOWN:
        return 0, len(boundaries)
    best = max((i for i, b in enumerate(boundaries) if b.outcome in _HELD), default=-1)
    first = min(max(best - 1, 0), len(boundaries) - SHOWN)
    return first, first + SHOWN
