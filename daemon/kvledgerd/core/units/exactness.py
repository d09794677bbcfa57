"""Whether what a unit brings is exact, and what becomes of approximations where it is.

Whatever was computed over an approximation is one, however exactly its own bytes are kept: else it would be offered as
exact once the rows before it are stored anew. The daemon sees no computation, so it goes by what it knows: the engine
says so, the unit begins behind rows that are approximations, or its engine holds an approximate hit along its path,
which may go on behind the unit's end or turn off before it: rows can be cut out of a longer hit. In doubt a unit counts
as approximate; that costs a miss of those who ask for exact bytes, and is mended by the next unit that is exact beyond
doubt.

To such a unit approximations count as missing. It brings all of them, and its commit puts its own in their place.
"""

from kvledger.errors import CommitRefusedError
from kvledger.wire.requests import Reserve
from kvledgerd.core.commands import Ask
from kvledgerd.core.holdings import Lease
from kvledgerd.core.index import Node
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.state import State

__all__ = ["is_approx"]


def is_approx(state: State, ask: Ask, known: KnownLayout, request: Reserve, path: list[Node]) -> bool:
    """Tell whether what a unit brings counts as an approximation.

    Args:
        state: The cache.
        ask: Who brings it.
        known: Its layout.
        request: The unit.
        path: The blocks of its path that are known.

    Raises:
        CommitRefusedError: Its engine says so, and its layout allows no approximation.
    """
    if not known.layout.allow_approx:
        if request.approx:
            wrong, remedy = (
                "no look-up could use it: its layout allows no approximation",
                "set allow_approx, or drop it",
            )
            raise CommitRefusedError(wrong, field="approx", remedy=remedy)
        return False
    if request.approx:
        return True
    sight = state.sight(ask.caller.engine, known.number)
    before = (cell for node in path[: request.first_block] if (cell := node.cell(known.number)) is not None)
    if any(cell.approx & known.rows_mask & ~sight.mask(cell) for cell in before):
        return True
    leases = [lease for number in state.engines[ask.caller.engine].leases if _is_approx(lease := state.leases[number])]
    held = [lease for lease in leases if lease.layout == known.number]
    return bool(held) and _is_along(known, path, held)


def _is_approx(lease: Lease) -> bool:
    return any(offer.approx and offer.ready for offer in lease.offers)


def _is_along(known: KnownLayout, path: list[Node], held: list[Lease]) -> bool:
    """Tell whether one of these hits ends on a path, or has blocks in common with it that are approximations."""
    ends = {offer.node: None for lease in held for offer in lease.offers if offer.approx and offer.ready}
    if any(node.id in ends for node in (known.tree.root, *path)):
        return True
    cells = (node.cell(known.number) for node in path)
    first = next((cell for cell in cells if cell is not None and cell.approx), None)
    return first is not None and any(first in lease.blocks[: first.node.depth] for lease in held)
