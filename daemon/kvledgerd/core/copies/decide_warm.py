"""Warm-up: prefixes that were used most recently are brought back from disk ahead of need.

Heat is the order of use that the log holds, so that a daemon that starts knows what was asked for before it stopped. A
warm-up takes only memory that is free: it evicts nothing, revokes nothing, and ends where memory does.
"""

from collections.abc import Iterator

from kvledger.errors import CapacityError
from kvledger.kinds import Kind
from kvledger.wire.disk_requests import Warm
from kvledger.wire.replies import Warming
from kvledgerd.core.commands import Ask, WarmDue
from kvledgerd.core.copies.decide_disk import start_restore
from kvledgerd.core.copies.parts import find_parts, masks_of, path_to
from kvledgerd.core.decision import Ack, Decision, WarmUp
from kvledgerd.core.index import Cell
from kvledgerd.core.placement.admission import admit
from kvledgerd.core.receipts import check_digest
from kvledgerd.core.state import State
from kvledgerd.core.transitions import ObjectState

__all__ = ["warm", "warm_due"]

JUDGED = 16
"""Prefixes that one decision judges, each a walk along its path."""


def warm(state: State, ask: Ask, request: Warm) -> Decision:
    """Begin a warm-up of the caller's tenant; the reply tells among how many prefixes it will look."""
    check_digest(state, ask.caller, request.layout)
    tenant = ask.caller.tenant
    total = sum(1 for _ in _prefixes(state, tenant, request.layout))
    run = WarmUp(tenant, request.layout, request.block, request.bytes or state.config.memory_bytes)
    return Decision(reply=Warming(0, 0, 0, 0, total), effects=((Ack.SESSION, run),))


def warm_due(state: State, command: WarmDue) -> Decision:
    """Begin to bring the next prefix back that lies on disk alone, if it fits; says how far it has looked."""
    found = list(_prefixes(state, command.tenant, command.layout))
    total = len(found)
    if state.degraded:
        return Decision(reply=Warming(0, 0, 0, total, total))
    for seen, prefix in enumerate(found[command.seen : command.seen + JUDGED], command.seen + 1):
        if command.block and all(node.hash != command.block for node in prefix.node.upwards()):
            continue
        decision = _bring(state, command, prefix, seen, total)
        if decision is not None:
            return decision
    return Decision(reply=Warming(0, 0, 0, min(command.seen + JUDGED, total), total))


def _prefixes(state: State, tenant: str, layout: bytes) -> Iterator[Cell]:
    """Yield disk prefixes of a tenant, or of all, hottest first, of layouts as far as they are named.

    There may be very many, so nothing is spent on one here but a look at its layout's number.
    """
    named = (k for k in state.layouts.values() if k.layout.digest.startswith(layout))
    usable = {known.number: None for known in named if not known.epoch.why_unusable(known.layout)}
    for owner, orders in state.orders.items():
        if tenant in {"", owner}:
            yield from (prefix for prefix in reversed(orders[Kind.DISK_PREFIX]) if prefix.layout in usable)


def _bring(state: State, command: WarmDue, prefix: Cell, seen: int, total: int) -> Decision | None:
    """Return what brings a prefix back, or ends the warm-up; None if there is nothing to bring."""
    known = state.layouts[prefix.layout]
    at = path_to(known, prefix.node, prefix.residue, prefix)
    parts = find_parts(known, at, replayed=True)
    todo = [(c, s) for c, s in parts.found if c.state(s) is ObjectState.ON_DISK]
    size = sum(known.length_of(c, s) for c, s in todo)
    if parts.lacking or not todo or size > command.left:
        return None
    over = Decision(reply=Warming(0, 0, 0, total, total))
    needs = [(known.slot_kinds[s], known.length_of(c, s)) for c, s in todo]
    protect = masks_of(parts.found)
    try:
        admission = admit(state, known.tenant, needs, protect=protect, new_objects=0, epoch=known.epoch)
    except CapacityError:
        return over
    if isinstance(admission, Decision):
        jobs = admission.park.jobs if admission.park is not None else ()
        if not jobs:
            return over
        return Decision(admission.events, Warming(jobs[0], 0, 0, seen - 1, total), Ack.WRITTEN, admission.effects)
    if admission.victims:
        return over
    event, effects = start_restore(state, known, at, todo, admission.places, promotion=True)
    return Decision((event,), Warming(event.job, len(todo), size, seen, total), Ack.WRITTEN, effects)
