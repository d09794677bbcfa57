"""Rows about look-ups: the verdict, its offers and cuts, and what was handed out of each group and shard.

A prompt of a million tokens has thousands of objects, and they are handed out as a few runs. So what is kept of a
delivery is its runs of tokens; which objects these were follows from the path, which is kept for ever.
"""

from collections.abc import Iterator

import msgspec
from msgspec.structs import asdict

from kvledger.verdict import Exactness
from kvledger_storage.audit_sql.rows import CutRow, DeliveryRow, LookupRow, OfferRow
from kvledger_storage.events import LookedUp, OfferRecord
from kvledgerd.audit.telling.structure import described
from kvledgerd.core.holdings import Lease
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.choice import Judged
from kvledgerd.core.lookup.handles import Handles
from kvledgerd.core.state import State
from kvledgerd.core.structure import find_node

__all__ = ["lookup_rows"]


def lookup_rows(state: State, seq: int, event: LookedUp) -> Iterator[LookupRow | OfferRow | CutRow | DeliveryRow]:
    """Yield the rows of a verdict, from the state with its lease."""
    known = state.layouts[event.layout]
    judged = [_judged(state, known, offer) for offer in event.offers]
    recoverable, ready = next(((many, now) for kind, many, now in event.reach if not kind), (0, 0))
    yield LookupRow(
        seq,
        event.lease,
        event.engine,
        event.layout,
        event.node,
        event.tokens,
        event.hash_tokens,
        recoverable,
        ready,
        event.usable_tokens,
        max((at.position for at in judged), default=0),
        msgspec.json.encode(asdict(event.wish)).decode(),
    )
    for number, at in enumerate(judged):
        cell = at.cell.id if at.cell is not None else 0
        yield OfferRow(
            seq,
            number,
            at.node.id,
            cell,
            at.position,
            at.residue,
            at.replay,
            at.ready,
            at.exactness is Exactness.APPROX,
        )
    for number, cut in enumerate(event.cuts):
        yield CutRow(seq, number, int(cut.layer), cut.code.value, cut.start, cut.end, cut.group, str(cut))
    if event.lease:
        yield from _deliveries(state, seq, known, state.leases[event.lease], judged)


def _judged(state: State, known: KnownLayout, offer: OfferRecord) -> Judged:
    node = find_node(state, known.tree, offer.node)
    position = node.depth * known.layout.block_tokens + offer.residue
    cell = node.boundary(known.number, offer.residue, offer.residue_hash)
    rest = (Exactness.APPROX if offer.approx else Exactness.EXACT, offer.replay, offer.ready)
    return Judged(position, node, offer.residue, offer.residue_hash, cell, *rest)


def _deliveries(
    state: State, seq: int, known: KnownLayout, lease: Lease, judged: list[Judged]
) -> Iterator[DeliveryRow]:
    handles = Handles(known, lease.blocks, state.lease_sight(lease))
    for offer, at in enumerate(judged):
        found = _runs(known, handles, at) if at.ready else _needed(known, at)
        for (group, shard), runs in found.items():
            for first, end in runs:
                yield DeliveryRow(seq, offer, group, shard, first, end)


def _needed(known: KnownLayout, at: Judged) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return what a resume needs of each group and shard: what is restored before it is handed out."""
    geometry, needed = known.geometry, dict[int, tuple[int, int]]()
    for group in geometry.rows:
        per_row = known.layout.groups[group].tokens_per_row
        needed[group] = 0, at.position - at.position % per_row
    for group in geometry.windows:
        pages, size = geometry.window_pages(group, at.position), known.layout.groups[group].page_tokens
        needed[group] = pages.start * size, pages.stop * size
    for group in geometry.snapshots:
        if geometry.boundary_need(group, at.position):
            needed[group] = at.position, at.position
    shards = {group: known.layout.groups[group].shards for group in needed}
    return {(group, shard): [run] for group, run in needed.items() for shard in range(shards[group])}


def _runs(known: KnownLayout, handles: Handles, at: Judged) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return group and shard to the runs of tokens that an offer hands out, in order."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    whole = at.node.depth * known.layout.block_tokens
    for group in known.geometry.rows if whole else ():
        for shard in range(known.layout.groups[group].shards):
            found[group, shard] = [(0, whole)]
    for first, cell, slot in handles.objects(at):
        item = described(known, cell, slot)
        runs, end = found.setdefault((item.group, item.shard), []), first + item.tokens
        if runs and runs[-1][1] == first and item.tokens:
            runs[-1] = runs[-1][0], end
        else:
            runs.append((first, end))
    return found
