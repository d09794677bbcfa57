"""Whether what a unit brings is exact, and what becomes of approximations where it is.

Whatever was computed over an approximation is one, however exactly its own bytes are kept: else it would be offered as
exact once the rows before it are stored anew. The daemon sees no computation, so it goes by what it knows: the engine
says so, the unit begins behind rows that are approximations, or its engine holds an approximate hit along its path. In
doubt a unit counts as approximate; that costs a miss of those who ask for exact bytes, and is mended by the next unit
that is exact beyond doubt.

To such a unit approximations count as missing. It brings all of them, and its commit puts its own in their place.
"""

from kvledger.errors import CommitRefusedError
from kvledger.wire.requests import Reserve
from kvledgerd.core.commands import Ask
from kvledgerd.core.holdings import KnownLayout
from kvledgerd.core.index import Node
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
    leases = [state.leases[number] for number in state.engines[ask.caller.engine].leases]
    held = {
        o.node: None for lease in leases if lease.layout == known.number for o in lease.offers if o.approx and o.ready
    }
    return bool(held) and any(node.id in held for node in (known.tree.root, *path))
