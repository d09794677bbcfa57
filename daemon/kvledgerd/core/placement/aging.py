"""What keeps the eviction orders true: when a cell enters one, is used, leaves it, and what goes first.

A cell stands in the order of each kind of which it holds memory copies, and a boundary with a manifest in that of disk
prefixes, by which disk space is given up. There is one exception, which keeps look-ups cheap:
rows go leaf by leaf, so of the blocks of a path only the last one stands in the orders of rows. What uses a path uses
its end, one step instead of one for each block. A block whose last successor went is a leaf from then on. It bore every
use of what stood behind it, so it takes over their number and the time of the last one; before anything had to go for
want of memory it just goes next, or, if a look-up ended at it since it was passed, last.
"""

from kvledger.epochs import EpochState
from kvledger.kinds import Kind
from kvledgerd.core.epoch.epochs import Epoch
from kvledgerd.core.index import Cell, Node
from kvledgerd.core.known_layout import ROW_KINDS, KnownLayout
from kvledgerd.core.placement.reuse import Reuse, carried, drawn_by, name_of, new_mark, time_of, used_again
from kvledgerd.core.state import State

__all__ = [
    "count_below",
    "goes_first",
    "is_leaf_bound",
    "note_read",
    "prove",
    "reorder",
    "requeue",
    "stamp",
    "use_boundary",
    "use_cell",
]


_ROWS = sum(1 << kind for kind in ROW_KINDS)
_COPIES = (1 << Kind.DISK_PREFIX) - 1
"""All kinds but that of prefixes on disk."""


def goes_first(known: KnownLayout, cell: Cell, kind: int) -> bool:
    """Tell whether copies go before all that have proven their use; the one place where this is decided.

    What drains goes first however much it is used. Rows that no boundary stands on are material. Window pages of a
    block enter the first queue when they are stored and leave it by their first use, so nothing has to be kept of them
    here.
    """
    return known.epoch.state is EpochState.DRAINING or (is_leaf_bound(cell, kind) and not cell.used)


def requeue(state: State, epoch: Epoch) -> None:
    """Let the copies of an epoch that begins to drain, or ends draining, wait where they belong now."""
    for orders in [state.orders[epoch.tenant]] if epoch.tenant in state.orders else ():
        for kind, order in enumerate(orders):
            for cell in list(order):
                known = state.layouts[cell.layout]
                if known.epoch is epoch:
                    order.put(cell, order.marks[cell.id], first=goes_first(known, cell, kind))


def is_leaf_bound(cell: Cell, kind: int) -> bool:
    """Tell whether copies of this kind stay as long as a block behind theirs has memory copies."""
    return cell.residue < 0 and kind in ROW_KINDS


def reorder(state: State, cell: Cell, *, oldest: bool = False) -> None:
    """Let a cell enter and leave orders as its memory copies say now; to be called whenever they have changed.

    Args:
        state: The cache.
        cell: The cell.
        oldest: What was dropped was the oldest, so that a block that becomes a leaf by it goes next.
    """
    known = state.layouts[cell.layout]
    before, now = cell.kinds, known.kinds_in(cell) if cell.memory or cell.manifest is not None else 0
    if now == before:
        return
    cell.kinds = now
    orders, block = state.orders[known.tenant], cell.residue < 0
    changed = (before ^ now) & ~(_ROWS if block and cell.below else 0)
    for kind in known.kinds if changed else ():
        if changed & before & 1 << kind:
            orders[kind].remove(cell.id)
        elif changed & 1 << kind:
            page = block and kind not in ROW_KINDS
            orders[kind].put(cell, cell.usage, first=page or goes_first(known, cell, kind))
    if block and not (before and now):
        _note_successor(state, known, cell, 1 if now else -1, oldest=oldest)


def _note_successor(state: State, known: KnownLayout, after: Cell, change: int, *, oldest: bool) -> None:
    """Count one successor with memory copies more or less; a block is in the orders of rows while it has none."""
    node, orders = after.node.parent, state.orders[known.tenant]
    cell = node.cell(known.number) if node is not None else None
    if cell is None:
        return
    cell.below += change
    if change < 0:
        cell.usage, after.usage = carried(cell.usage, after.usage), new_mark(time_of(after.usage), 0)
        state.touch(cell)
    if cell.below > 1 or (cell.below == 1 and change < 0):
        return
    old = oldest and not cell.revisited
    cell.revisited = False
    # One without memory copies stands nowhere, or is about to be told so.
    for kind in ROW_KINDS if cell.kinds and cell.memory else ():
        if cell.kinds >> kind & 1 and cell.below:
            orders[kind].remove(cell.id)
        elif cell.kinds >> kind & 1:
            orders[kind].put(cell, cell.usage, first=goes_first(known, cell, kind), oldest=old)


def count_below(known: KnownLayout, cell: Cell) -> None:
    """Count, for the cell of a block that was just made, the successors that it had already."""
    for child in cell.node.children:
        after = child.cell(known.number)
        if after is not None and after.kinds:
            cell.below += 1


def prove(state: State, cell: Cell) -> None:
    """Let a block that counted as material until now wait with the others."""
    known = state.layouts[cell.layout]
    for kind in ROW_KINDS if cell.kinds & _ROWS and not cell.below else ():
        if cell.kinds >> kind & 1:
            state.orders[known.tenant][kind].put(cell, cell.usage, first=goes_first(known, cell, kind))


def stamp(state: State, known: KnownLayout, cells: list[Cell]) -> None:
    """Mark what is stored or restored, before it enters an order; root first.

    A block that is not in the sample was wanted before as often as the one before it, since paths are used as a whole.
    """
    rows, states = state.reuse[known.tenant]
    uses = 0
    for cell in cells:
        reuse = rows if cell.residue < 0 else states
        if reuse.samples(drawn_by(cell.node, cell.residue_hash)):
            found = reuse.see(name_of(cell.layout, cell.node, cell.residue_hash))
            uses = found if cell.residue < 0 else uses
        else:
            found = uses if cell.residue < 0 else 0
        if not cell.kinds & _COPIES:
            cell.usage = new_mark(reuse.now, found)


def note_read(state: State, known: KnownLayout, blocks: list[Cell]) -> None:
    """Note, of blocks that a look-up hands out, what is in the sample."""
    reuse = state.reuse[known.tenant][0]
    # No call is spent on a block that is not in the sample, as most are not; the sample may shrink on the way
    mask = reuse.mask
    for cell in [cell for cell in blocks if not cell.node.hash[8] & mask]:
        if reuse.samples(cell.node.hash):
            reuse.see(name_of(cell.layout, cell.node, b""))


def use_cell(state: State, known: KnownLayout, cell: Cell, kinds: int = -1) -> None:
    """Make a cell's copies, those of all kinds or of a mask of them, the most recently used."""
    orders, chosen, block = state.orders[known.tenant], cell.kinds & kinds, cell.residue < 0
    rows, states = state.reuse[known.tenant]
    if block and cell.below:
        chosen &= ~_ROWS
    if not chosen:
        return
    if not block:
        _see_state(states, cell, cell.usage)
    if not block or chosen & _ROWS:
        cell.usage = used_again(cell.usage, rows.now)
        state.touch(cell)
    usual = cell.used and known.epoch.state is not EpochState.DRAINING
    for kind in known.kinds:
        if chosen >> kind & 1:
            mark = cell.usage
            if block and kind not in ROW_KINDS:
                before = orders[kind].marks.get(cell.id, new_mark(states.now, 0))
                _see_state(states, cell, before)
                mark = used_again(before, states.now)
            orders[kind].put(cell, mark, first=not usual and goes_first(known, cell, kind))


def _see_state(states: Reuse, cell: Cell, mark: int) -> None:
    if time_of(mark) != states.now and states.samples(drawn_by(cell.node, cell.residue_hash)):
        states.see(name_of(cell.layout, cell.node, cell.residue_hash))


def use_boundary(state: State, known: KnownLayout, node: Node, position: int) -> None:
    """Make what a boundary needs of its path the most recently used: its window pages, and the end of its rows."""
    for kind, span in known.window_spans:
        least = max(0, position - span) // known.layout.block_tokens
        at: Node | None = node
        while at is not None and at.depth > least:
            cell = at.cell(known.number)
            if cell is not None:
                use_cell(state, known, cell, 1 << kind)
            at = at.parent
    end = node.cell(known.number)
    if end is not None:
        end.revisited = end.below > 0
        if end.below and end.kinds & _ROWS:
            end.usage = used_again(end.usage, state.reuse[known.tenant][0].now)
            state.touch(end)
        use_cell(state, known, end, _ROWS)
