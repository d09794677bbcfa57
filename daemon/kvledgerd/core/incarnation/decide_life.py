"""Decisions about incarnations, engines, layouts and arenas."""

from kvledger.errors import LayoutError, LimitError
from kvledger.layout import Layout
from kvledger.layout_rules import check_layout
from kvledger.presets import check_complete
from kvledger.wire.replies import Registered
from kvledger.wire.requests import Register
from kvledger_storage.events import (
    ArenaAdded,
    ArenaDropped,
    EngineEntered,
    EngineHeard,
    EngineLeft,
    Event,
    IncarnationStarted,
    IncarnationStopped,
    LayoutRegistered,
)
from kvledgerd.core.commands import ArenaFailed, ArenaMade, Ask, EngineGone, EngineJoined, EngineSilent, Start, Stop
from kvledgerd.core.decision import Ack, Decision
from kvledgerd.core.epoch.decide_epochs import epoch_for
from kvledgerd.core.holdings import ArenaJob
from kvledgerd.core.state import State
from kvledgerd.core.topology.topology_loss import after_boot, without_arenas

__all__ = [
    "SERIAL_STEP",
    "arena_failed",
    "arena_made",
    "engine_gone",
    "engine_joined",
    "engine_silent",
    "register",
    "start",
    "stop",
]

SERIAL_STEP = 2**32
"""Receipts handed out by an incarnation whose last events were lost are never handed out again."""


def start(state: State, command: Start) -> Decision:
    """Begin an incarnation: what its predecessor held is gone, and so are arenas that were not found again.

    Topologies stay with what was found, since the processes that captured their graphs need not have noticed.
    """
    begun = IncarnationStarted(
        command.incarnation,
        command.boot_id,
        command.log_id,
        state.serial + SERIAL_STEP,
        session_lost=not state.stopped,
        tail_repaired=command.tail_repaired,
    )
    booted = command.boot_id != state.boot_id
    reason = "the machine was booted" if booted else "not found after the restart"
    lost = [a.id for a in state.arenas.values() if a.ready and a.id not in command.arenas]
    events: list[Event] = [begun, *(after_boot(state) if booted else without_arenas(state, lost, reason))]
    events += [ArenaDropped(number, reason) for number in lost]
    return Decision(tuple(events), ack=Ack.DURABLE)


def stop(state: State, command: Stop) -> Decision:
    """End an incarnation in order."""
    del command
    return Decision((IncarnationStopped(state.incarnation),), ack=Ack.DURABLE)


def engine_joined(state: State, command: EngineJoined) -> Decision:
    """Let an engine in; its number is that of the event."""
    event = EngineEntered(state.next_engine, command.key, command.tenant, command.uid, command.pid, command.name)
    return Decision((event,))


def engine_gone(state: State, command: EngineGone) -> Decision:
    """Release what an engine held."""
    if command.engine not in state.engines:
        return Decision()
    return Decision((EngineLeft(command.engine, command.reason),))


def engine_silent(state: State, command: EngineSilent) -> Decision:
    """Note that an engine fell silent, or is heard again."""
    engine = state.engines.get(command.engine)
    if engine is None or engine.silent == command.silent:
        return Decision()
    return Decision((EngineHeard(command.engine, command.silent),))


def register(state: State, ask: Ask, request: Register) -> Decision:
    """Make a layout known, or say under which number it is.

    A known one is answered whatever became of its epoch: an engine that connects again must not fail over it, and its
    look-ups say what is wrong.
    """
    layout, tenant = request.layout, ask.caller.tenant
    owner = 0 if layout.weights_digest else ask.caller.engine
    known = state.layout_numbers.get((tenant, layout.digest, owner))
    if known is not None:
        return Decision(reply=Registered(known, layout.digest), ack=Ack.DURABLE)
    _check(state, layout)
    _check_number(state, tenant)
    epoch, added = epoch_for(state, tenant, layout, owner)
    event = LayoutRegistered(state.next_layout, tenant, epoch, layout)
    return Decision((*added, event), Registered(event.number, layout.digest), Ack.DURABLE)


def _check(state: State, layout: Layout) -> None:
    check_layout(layout)
    check_complete(layout)
    if not (layout.weights_digest or state.config.allow_unpinned):
        raise LayoutError(
            "the weights are not named",
            field="weights_digest",
            remedy="give a digest of the weights; without one nothing can prove that a reuse is right, and "
            "allow_unpinned lets an engine reuse only what it stored itself",
        )


def _check_number(state: State, tenant: str) -> None:
    """Refuse a tenant's layouts beyond their cap; what one tenant registers takes nothing from the others.

    Layouts that belonged to engines which have ended are not counted: nobody can use them, or take them away.
    """
    mine = [
        state.layouts[number]
        for (owner, _, engine), number in state.layout_numbers.items()
        if owner == tenant and (not engine or engine in state.engines)
    ]
    remedy = (
        "use one of them; if an engine brings a new one at each start, see what differs, which makes every "
        "reuse a miss too: kvledger log cat --json | grep LayoutRegistered"
    )
    if len(mine) >= state.config.max_layouts:
        raise LimitError(f"{len(mine)} layouts of this tenant are known", field="max_layouts", remedy=remedy)
    weight = sum(known.weight_bytes for known in mine)
    if weight >= state.config.layout_bytes:
        wrong = f"the {len(mine)} layouts of this tenant that are known take {weight} bytes of the daemon's memory"
        raise LimitError(wrong, field="layout_bytes", remedy=remedy)


def arena_made(state: State, command: ArenaMade) -> Decision:
    """Let an arena join its pool."""
    if not isinstance(state.jobs.get(command.job), ArenaJob):
        return Decision()
    return Decision((ArenaAdded(command.job, command.arena),))


def arena_failed(state: State, command: ArenaFailed) -> Decision:
    """Go on without an arena that could not be made."""
    if not isinstance(state.jobs.get(command.job), ArenaJob):
        return Decision()
    return Decision((ArenaDropped(command.arena, command.why),))
