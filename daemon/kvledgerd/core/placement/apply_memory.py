"""Applying events about shares of memory: quotas, the arenas that follow them, and what evictions leave behind."""

from kvledger.geometry import BOUNDARY
from kvledger.kinds import Form, Kind
from kvledger_storage.events import ArenaRekinded, QuotaMoved, QuotaSet
from kvledgerd.core.config import PAGE
from kvledgerd.core.holdings import ArenaJob, Unit
from kvledgerd.core.index import Copies, Copy
from kvledgerd.core.known_layout import ROW_KINDS, KnownLayout
from kvledgerd.core.placement.ghosts import Ghosts, ghost_key
from kvledgerd.core.placement.orders import Order
from kvledgerd.core.placement.reuse import REACH, Reuse
from kvledgerd.core.state import Quota, State

__all__ = [
    "arena_rekinded",
    "grow_older",
    "prepare_orders",
    "quota_moved",
    "quota_set",
    "recall_copies",
    "recall_unit",
    "remember",
]


def arena_rekinded(state: State, event: ArenaRekinded) -> None:
    """Take an empty arena out of its pool; it comes back as that of another kind when it is cleared."""
    arena = state.arenas[event.arena]
    state.pools[arena.tenant, arena.kind].remove(arena.id)
    state.toggle("arena", arena.id, arena.tenant, int(arena.kind), arena.bytes)
    arena.kind, arena.ready = event.kind, False
    state.jobs[event.job] = ArenaJob(event.job, arena.id)
    state.serial = max(state.serial, event.job + 1)


def quota_moved(state: State, event: QuotaMoved) -> None:
    """Move a share; a kind without quota has what it holds, and what an operator fixed stays as it is."""
    for kind, change in ((event.source, -event.bytes), (event.target, event.bytes)):
        quota = state.quotas.get((event.tenant, int(kind)))
        if quota is not None and quota.fixed:
            continue
        held = sum(a.bytes for a in state.arenas.values() if a.kind is kind and a.tenant == event.tenant)
        state.quotas[event.tenant, int(kind)] = Quota(max(0, (held if quota is None else quota.bytes) + change))
    _ghosts(state, event.tenant, int(event.target)).forgive()


def quota_set(state: State, event: QuotaSet) -> None:
    """Fix a quota, or let the load have it again."""
    state.quotas.pop((event.tenant, int(event.kind)), None)
    if event.bytes:
        state.quotas[event.tenant, int(event.kind)] = Quota(event.bytes, fixed=True)


def _ghosts(state: State, tenant: str, kind: int) -> Ghosts:
    return state.ghosts.setdefault((tenant, kind), Ghosts())


def prepare_orders(state: State, tenant: str) -> None:
    """Make the eviction orders of a tenant, once it has a layout."""
    if tenant not in state.orders:
        rows, states = state.reuse[tenant] = (Reuse(), Reuse())
        kinds = [rows if kind in ROW_KINDS else states for kind in range(Kind.DISK_PREFIX)]
        state.orders[tenant] = [*(Order(reuse) for reuse in kinds), Order()]


def grow_older(state: State, tenant: str) -> None:
    """Let everything of a tenant be as old as it is, now that memory was given out."""
    live = sum(pool.live_bytes for (owner, _), pool in state.pools.items() if owner == tenant) // PAGE
    for reuse in state.reuse[tenant]:
        reuse.span = REACH * live
    for order in state.orders[tenant]:
        order.grow_older()


def _wake(state: State, tenant: str) -> None:
    if state.reuse[tenant][0].active:
        return
    for reuse in state.reuse[tenant]:
        reuse.wake()
    for order in state.orders[tenant]:
        order.grow_older()


def remember(state: State, copies: list[Copies], short: tuple[Kind, ...]) -> None:
    """Remember what goes of kinds that are short of memory, before it goes, and begin to learn what is wanted again.

    Args:
        state: The cache.
        copies: What goes of one tenant: cells, each with a mask of slots.
        short: The kinds.
    """
    tenant = state.layouts[copies[0][0].layout].tenant
    _wake(state, tenant)
    going: dict[Kind, list[tuple[int, int]]] = {kind: [] for kind in short}
    for cell, mask in copies:
        known, key = state.layouts[cell.layout], ghost_key(cell.layout, cell.node, cell.residue_hash)
        for kind, gone in going.items():
            mine = mask & known.mask_of(cell, kind)
            if mine:
                gone.append((key, known.bytes_in(cell, mine)))
    most = sum(arena.bytes for arena in state.arenas.values() if arena.tenant == tenant) // 4
    for kind, gone in going.items():
        if gone:
            _ghosts(state, tenant, int(kind)).remember(gone, most)


def recall_unit(state: State, known: KnownLayout, unit: Unit) -> None:
    """Note which ghosts a reservation brings back: what a unit has to bring was computed anew."""
    ghosts = {group: state.ghosts.get((known.tenant, kind)) for group, kind in known.group_kinds}
    if not any(found is not None and found.sizes for found in ghosts.values()):
        return
    keys: dict[int, int] = {}
    end = unit.end(known.layout.block_tokens)
    for index in unit.missing():
        block, group = unit.objects[index].block, unit.objects[index].group
        if block not in keys:
            node, own = (unit.node, unit.residue_hash) if block == BOUNDARY else (unit.path[block], b"")
            keys[block] = ghost_key(known.number, node, own)
        found = ghosts[group]
        if found is not None and keys[block] in found.sizes:
            _recall(state, known, group, keys[block], end)


def recall_copies(state: State, copies: list[Copy], end: int) -> None:
    """Note which ghosts a restore brings back, for a resume at token `end`."""
    brought = {(cell.id, state.layouts[cell.layout].slot_groups[slot]): cell for cell, slot in copies}
    for (_, group), cell in brought.items():
        key = ghost_key(cell.layout, cell.node, cell.residue_hash)
        _recall(state, state.layouts[cell.layout], group, key, end)


def _recall(state: State, known: KnownLayout, group: int, key: int, end: int) -> None:
    """Rows cost the tokens of their block; a state without which nothing resumes at `end` costs all before it."""
    spec = known.geometry.groups[group]
    ghosts = state.ghosts.get((known.tenant, int(spec.kind)))
    if ghosts is not None:
        ghosts.recall(key, known.layout.block_tokens if spec.form is Form.ROWS else end)
