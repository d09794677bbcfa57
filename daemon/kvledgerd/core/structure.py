"""Changes that several events share: nodes, cells, pins, slots of memory, outcomes. Called by `apply` alone."""

from kvledger.geometry import bits
from kvledger.kinds import Kind
from kvledger_storage.events import Blob
from kvledgerd.core.config import PAGE
from kvledgerd.core.copies.precisions import QUANTISED
from kvledgerd.core.holdings import RelocationJob, RestoreJob
from kvledgerd.core.index import (
    ASKED,
    COMMIT,
    Cell,
    Copies,
    Node,
    Tree,
    joined,
    new_cell,
    new_node,
    parted,
)
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.placement.aging import count_below, reorder, use_boundary, use_cell
from kvledgerd.core.placement.caps import Amount
from kvledgerd.core.placement.pools import Extent, Pool, paged, stretches
from kvledgerd.core.state import OUTCOMES_KEPT, Outcome, State
from kvledgerd.core.transitions import Happening, ObjectState

__all__ = [
    "add_node",
    "bare_manifests",
    "blocks_of",
    "count_object",
    "count_record",
    "couple",
    "drop_disk",
    "drop_memory",
    "ensure_cell",
    "ensure_pool",
    "extend_path",
    "find_node",
    "forget_manifest",
    "free",
    "give",
    "give_place",
    "invalidate",
    "keep_manifest",
    "link_rows",
    "note_outcome",
    "pin",
    "prune",
    "record_bytes",
    "rows_follow",
    "settle_cell",
    "take",
    "touch_boundary",
    "unpin",
    "vacate_memory",
]


_ENDED = frozenset({ObjectState.EVICTED, ObjectState.QUARANTINED, ObjectState.INVALID})


def record_bytes(length: int) -> int:
    """Return what an object of `length` bytes takes on disk: a page of header, and whole pages."""
    return PAGE + paged(length)


def find_node(state: State, tree: Tree, number: int) -> Node:
    """Return a node by number; a tree's root has the number of no other."""
    return tree.root if number == tree.root.id else state.nodes[number]


def add_node(state: State, tree: Tree, parent: Node, chain_hash: bytes) -> Node:
    """Add a block to a tree."""
    node = new_node(state.next_node, parent, chain_hash)
    state.next_node += 1
    state.nodes[node.id] = node
    tree.nodes[chain_hash] = node
    parent.children = joined(parent.children, node)
    return node


def extend_path(state: State, tree: Tree, parent: int, fresh: bytes) -> Node:
    """Return the node behind `parent` that the last of these 32-byte hashes names; nodes are made where none is."""
    node = find_node(state, tree, parent)
    for start in range(0, len(fresh), 32):
        chain_hash = fresh[start : start + 32]
        node = tree.nodes.get(chain_hash) or add_node(state, tree, node, chain_hash)
    return node


def ensure_pool(state: State, tenant: str, kind: Kind) -> Pool:
    """Return the pool of a tenant and kind, made if it is new."""
    return state.pools.setdefault((tenant, kind), Pool())


def ensure_cell(state: State, known: KnownLayout, node: Node, residue: int = -1, residue_hash: bytes = b"") -> Cell:
    """Return the cell of a layout at a block, or with `residue` at a boundary; made if it is new."""
    cell = node.cell(known.number) if residue < 0 else node.boundary(known.number, residue, residue_hash)
    if cell is None:
        slots = known.geometry.block_slots if residue < 0 else known.geometry.boundary_slots
        cell = new_cell(state.next_cell, node, known.number, len(slots), residue, residue_hash)
        state.next_cell += 1
        state.cells[cell.id] = cell
        if residue < 0:
            node.cells = joined(node.cells, cell)
            count_below(known, cell)
        else:
            node.boundaries = joined(node.boundaries, cell)
        state.touch(cell)
    return cell


def couple(known: KnownLayout, cell: Cell) -> None:
    """Mark indexer slots whose rows come from another commit; a residue may hold keys and no whole row of theirs."""
    have = cell.memory | cell.disk
    cell.uncoupled = 0
    for slot, other in known.couples_of(cell):
        both = have >> slot & have >> other & 1
        if both and cell.word(slot, COMMIT) != cell.word(other, COMMIT):
            cell.uncoupled |= 1 << slot


def settle_cell(state: State, cell: Cell, *, oldest: bool = False) -> None:
    """Note what is left of a cell whose copies have changed, and remove it if that is nothing.

    With it go the blocks that only led to it. What was dropped as the `oldest` lets what stands before it go next.
    """
    state.touch(cell)
    reorder(state, cell, oldest=oldest)
    if cell.uncoupled:
        couple(state.layouts[cell.layout], cell)
    if not cell.is_empty or cell.id not in state.cells:
        return
    del state.cells[cell.id]
    state.material_unused += not cell.used
    node = cell.node
    if cell.is_block:
        node.cells = parted(node.cells, cell)
    else:
        node.boundaries = parted(node.boundaries, cell)
    prune(state, state.layouts[cell.layout].tree, node)


def prune(state: State, tree: Tree, node: Node) -> None:
    """Remove a block that nothing needs, and then those before it."""
    while node.is_prunable and node.parent is not None:
        del state.nodes[node.id]
        del tree.nodes[node.hash]
        node.parent.children = parted(node.parent.children, node)
        node = node.parent


def take(state: State, known: KnownLayout, kind: Kind, arena: int, offset: int, length: int, objects: int = 1) -> None:
    """Allocate an extent of a layout's pool for so many objects, on the account of its epoch."""
    state.pools[known.tenant, kind].take(arena, offset, length, objects)
    for reuse in state.reuse[known.tenant]:
        reuse.now += paged(length) // PAGE
    held = known.epoch.memory
    held[kind] = held.get(kind, 0) + paged(length)


def give(state: State, known: KnownLayout, kind: Kind, arena: int, offset: int, length: int, objects: int = 1) -> None:
    """Free an extent of a layout's pool of so many objects, and take it off the account of its epoch."""
    state.pools[known.tenant, kind].give(arena, offset, length, objects)
    known.epoch.memory[kind] -= paged(length)


def give_place(state: State, job: RestoreJob | RelocationJob, index: int) -> None:
    """Free the slot into which a job was to bring one of its objects."""
    cell, slot = job.objects[index]
    known = state.layouts[cell.layout]
    give(state, known, known.slot_kinds[slot], *job.places[index], known.length_of(cell, slot))


def pin(cell: Cell) -> None:
    """Keep a cell's copies where they are."""
    cell.pins += 1


def unpin(state: State, cell: Cell) -> None:
    """Take one pin away; with the last one goes what only the pins kept."""
    cell.pins -= 1
    if cell.pins == 0:
        known = state.layouts[cell.layout]
        for arena, offset, length, kind in cell.limbo or ():
            give(state, known, Kind(kind), arena, offset, length)
        cell.limbo = None
        settle_cell(state, cell)


def free(state: State, copies: list[Copies]) -> None:
    """Give the memory of copies back, or keep it in limbo while their cells are pinned."""
    freed: dict[int, dict[Kind, list[Extent]]] = {}
    for cell, mask in copies:
        known = state.layouts[cell.layout]
        kinds, extents = known.slot_kinds, freed.setdefault(known.number, {})
        for slot in bits(mask):
            arena, offset, _ = cell.place(slot)
            if cell.pins:
                kept = (arena, offset, known.length_of(cell, slot), int(kinds[slot]))
                cell.limbo = [*(cell.limbo or ()), kept]
            else:
                extents.setdefault(kinds[slot], []).append((arena, offset, known.size_of(cell, slot)))
    for layout, extents in freed.items():
        for kind, mine in extents.items():
            for stretch in stretches(mine):
                give(state, state.layouts[layout], kind, *stretch)


def vacate_memory(state: State, copies: list[Copies], happening: Happening) -> None:
    """Carry out a transition that ends memory copies; the caller settles their cells."""
    for cell, mask in copies:
        for part, after in cell.move_alike(mask, happening) if mask else ():
            _count_end(state, after, part.bit_count())
    free(state, copies)


def drop_memory(state: State, copies: list[Copies]) -> None:
    """Drop memory copies; the caller settles their cells."""
    vacate_memory(state, copies, Happening.DROP_MEMORY)


def drop_disk(state: State, cell: Cell, slot: int, happening: Happening = Happening.DROP_DISK) -> None:
    """Drop a disk copy; the caller settles the cell."""
    known = state.layouts[cell.layout]
    count_object(state, known, cell, slot, -1)
    after = cell.move(slot, happening)
    _count_end(state, after)
    if not cell.is_block and not cell.disk:
        forget_manifest(state, cell)
    if cell.is_block and not cell.disk:
        for boundary in bare_manifests(cell):
            forget_manifest(state, boundary)
            settle_cell(state, boundary)


def bare_manifests(block: Cell) -> list[Cell]:
    """Return the boundaries whose manifest means nothing once their block has no disk copy: they bring none themselves.

    A boundary at the end of a block keeps nothing of its own where all groups are rows or pages, so what is on disk of
    it lies in blocks alone.
    """
    return [b for b in block.node.boundaries if b.layout == block.layout and b.manifest is not None and not b.disk]


def forget_manifest(state: State, cell: Cell) -> None:
    """Forget a boundary's manifest."""
    if cell.manifest is not None:
        known = state.layouts[cell.layout]
        count_record(state, known, Kind.DISK_PREFIX, -record_bytes(cell.manifest[2]))
        cell.manifest = None
        cell.marks &= ~ASKED
        reorder(state, cell)


def keep_manifest(state: State, cell: Cell, manifest: Blob) -> None:
    """Note where the manifest of a boundary lies, instead of an older one."""
    forget_manifest(state, cell)
    cell.manifest = manifest
    count_record(state, state.layouts[cell.layout], Kind.DISK_PREFIX, record_bytes(manifest[2]))
    reorder(state, cell)


def count_object(state: State, known: KnownLayout, cell: Cell, slot: int, records: int) -> None:
    """Count the record of an object, whose precision is known by now, or with -1 take it out again."""
    count_record(state, known, known.slot_kinds[slot], records * record_bytes(known.stored_length(cell, slot)))
    if cell.precisions and cell.precision(slot) in QUANTISED:
        state.quantised_records += records
        state.quantised_bytes += records * record_bytes(known.stored_length(cell, slot))


def count_record(state: State, known: KnownLayout, kind: Kind, size: int) -> None:
    """Count a record of `size` bytes on disk, or take one of minus `size` bytes out again."""
    state.disk_bytes += size
    known.epoch.disk += size
    used, entries = state.disk_use.pop((known.tenant, int(kind)), Amount())
    entries += 1 if size > 0 else -1
    if entries:
        state.disk_use[known.tenant, int(kind)] = Amount(used + size, entries)


def invalidate(state: State, cells: list[Cell]) -> None:
    """Make all objects of cells invalid, wherever their copies are, and settle them.

    What a pin keeps in memory stays in limbo until the pin goes. Marks of damage go at once: they tell why something
    lacks that could be stored anew, which nothing of a retired layout is.
    """
    in_memory = [(cell, cell.memory) for cell in cells]
    for cell in cells:
        for slot in bits(cell.disk):
            count_object(state, state.layouts[cell.layout], cell, slot, -1)
        held = cell.memory | cell.disk
        for part, after in cell.move_alike(held, Happening.INVALIDATE) if held else ():
            _count_end(state, after, part.bit_count())
    # Together, since what was stored one after the other is one stretch.
    free(state, in_memory)
    for cell in cells:
        forget_manifest(state, cell)
        cell.damaged = cell.uncoupled = 0
        settle_cell(state, cell)


def link_rows(known: KnownLayout, cells: list[Cell]) -> None:
    """Note of these blocks, and of those behind them, whether their rows lie right behind the block before."""
    own = {cell.id: None for cell in cells}
    for cell in cells:
        if cell.is_block:
            cell.follows = rows_follow(known, cell)
            for child in cell.node.children:
                after = child.cell(known.number)
                if after is not None and after.id not in own:
                    after.follows = rows_follow(known, after)


def rows_follow(known: KnownLayout, cell: Cell) -> bool:
    """Tell whether all rows of a block lie one stride behind those of the block before it, in one reservation."""
    parent = cell.node.parent
    before = parent.cell(known.number) if parent is not None else None
    mask = known.rows_mask
    if before is None or cell.memory & mask != mask or before.memory & mask != mask:
        return False
    for row in known.row_slots:
        arena, offset, generation = before.place(row.slot)
        if cell.place(row.slot) != (arena, offset + row.stride, generation):
            return False
    return True


def blocks_of(node: Node, layout: int) -> list[Cell]:
    """Return a layout's cells from the first block to `node`."""
    return [cell for block in node.path() for cell in block.cells if cell.layout == layout]


def touch_boundary(state: State, known: KnownLayout, node: Node, residue: int, cells: list[Cell]) -> None:
    """Make a boundary that is used the most recently used, with all that it stands on.

    Args:
        state: The cache.
        known: Its layout.
        node: Its last whole block.
        residue: Its tokens after that.
        cells: What belongs to it and to others on the same path, each being used too; older than the path itself.
    """
    for cell in cells:
        use_cell(state, known, cell)
    use_boundary(state, known, node, node.depth * known.layout.block_tokens + residue)


def note_outcome(state: State, job: int, outcome: Outcome) -> None:
    """Keep how a job ended for the request that waits for it."""
    state.outcomes[job] = outcome
    if len(state.outcomes) > OUTCOMES_KEPT:
        state.outcomes.popitem(last=False)


def _count_end(state: State, after: ObjectState, objects: int = 1) -> None:
    if after in _ENDED:
        state.objects -= objects
