"""``kvledger layout``: which layouts a log knows, what a group of one costs, and in what two of them differ."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kvledger.counts import counted
from kvledger.kinds import Form, Kind
from kvledgerd.audit.layouts import GroupCost, find, group_costs, stored
from kvledgerd.audit.replay import Damage
from kvledgerd.commands.arguments import add_data, add_json
from kvledgerd.commands.damage import end_of
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.identity import differences
from kvledgerd.output import say, say_json, table
from kvledgerd.sizes import short_bytes

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]

_DIGEST_SHOWN = 12


def add(subparsers: "Subparsers") -> None:
    """Declare the command with its parts."""
    parser = subparsers.add_parser("layout", help="what models keep, as their engines declared it", description=__doc__)
    parts = parser.add_subparsers(metavar="PART", required=True)
    listing = parts.add_parser("list", help="all layouts, and what is stored under each")
    listing.set_defaults(run=_list)
    show = parts.add_parser("show", help="the groups of one layout, and what they cost")
    show.set_defaults(run=_show)
    compare = parts.add_parser("compare", help="why one layout can not use what another stored")
    compare.set_defaults(run=_compare)
    named = "its number, or the beginning of its digest"
    show.add_argument("layout", metavar="LAYOUT", help=named)
    compare.add_argument("layout", metavar="STORED", help=named)
    compare.add_argument("asked", metavar="ASKED", help="the other, that asks")
    for part in (listing, show, compare):
        add_data(part)
        add_json(part)


def _list(arguments: argparse.Namespace) -> int:
    damage: Damage = []
    found = [one for _, one in stored(Path(arguments.data), damage)]
    if arguments.json:
        say_json({"layouts": found})
        return end_of(damage)
    columns = ("layout", "digest", "model", "weights", "epoch", "block", "objects", "in memory", "on disk")
    rows = [
        (
            one.number,
            one.digest[:_DIGEST_SHOWN],
            one.model,
            one.weights or "unnamed",
            one.epoch,
            one.block_tokens,
            f"{one.objects:,}",
            short_bytes(one.memory_bytes),
            short_bytes(one.disk_bytes),
        )
        for one in found
    ]
    table("", columns, rows)
    return end_of(damage)


def _show(arguments: argparse.Namespace) -> int:
    damage: Damage = []
    known = find(stored(Path(arguments.data), damage), arguments.layout)
    costs = group_costs(known)
    if arguments.json:
        groups = [{"per": c.per, "tokens": c.tokens, "object_bytes": c.object_bytes, "shards": c.shards} for c in costs]
        layout = msgspec.to_builtins(known.layout)
        say_json({"number": known.number, "digest": known.layout.digest.hex(), "layout": layout, "costs": groups})
        return end_of(damage)
    for line in _identity(known):
        say(line)
    columns = ("group", "kind", "form", "layers", "an object", "bytes", "bytes a token", "kernel ABI", "coupled to")
    table("", columns, [_row(known, cost) for cost in costs])
    say(_sum(known, costs))
    return end_of(damage)


def _identity(known: KnownLayout) -> list[str]:
    layout = known.layout
    named = ("model", "preset", "weights_digest", "revision", "tokenizer_digest", "dtype", "quantisation", "ranks")
    lines = [f"layout {known.number}, digest {layout.digest.hex()}, weights are {known.epoch.state.name}"]
    return lines + [f"{field}: {getattr(layout, field)}" for field in named if getattr(layout, field)]


def _row(known: KnownLayout, cost: GroupCost) -> tuple[object, ...]:
    spec = cost.spec
    what = f"a {cost.per}" + (f" of {counted(cost.tokens, 'token')}" if cost.tokens else "")
    what += f", {cost.shards} shards" if cost.shards > 1 else ""
    a_token = f"{cost.object_bytes * cost.shards / cost.tokens:,.1f}" if cost.tokens else ""
    abi = known.layout.abi[spec.name]
    kernel = f"{abi.name}:{abi.number}" + (f" {abi.layout}" if abi.layout else "")
    form = Form(spec.form).name.lower()
    size = f"{cost.object_bytes:,}"
    return spec.name, Kind(spec.kind).name, form, spec.owners, what, size, a_token, kernel, spec.coupled_to


def _sum(known: KnownLayout, costs: list[GroupCost]) -> str:
    """Return what a block of rows and the state of a boundary at its end take, all groups and shards."""
    items = known.geometry.unit_objects(0, known.layout.block_tokens, boundary=True)
    by_form = {form: sum(i.length for i in items if costs[i.group].spec.form is form) for form in Form}
    state = by_form[Form.PAGED_WINDOW] + by_form[Form.SNAPSHOT]
    return f"the rows of a block take {by_form[Form.ROWS]:,} bytes, the state of a boundary at its end {state:,}"


def _compare(arguments: argparse.Namespace) -> int:
    damage: Damage = []
    layouts = stored(Path(arguments.data), damage)
    one, other = find(layouts, arguments.layout), find(layouts, arguments.asked)
    same = one is other
    found = [] if same else differences(one.layout, other.layout)
    if arguments.json:
        say_json({"same": same, "differences": found})
        return end_of(damage)
    for line in found or ["they are one layout"]:
        say(line)
    return end_of(damage)
