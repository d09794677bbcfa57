"""The state at a seq of the past, from the log alone; and of a damaged log as far as it can be trusted."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from kvledger_storage.log import LogRotError, Problem, RealLogIO, read_events
from kvledgerd.audit.replay import log_directory
from kvledgerd.core.config import CAPLESS
from kvledgerd.core.state import State
from kvledgerd.core.transitions import ObjectState
from kvledgerd.replaying import PROGRESS_EVENTS, apply_logged
from kvledgerd.snapshots.origin import origin

__all__ = ["Past", "past_at"]


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache was after one event.

    Attributes:
        seq: That event, 0 if there was none before the damage.
        time_ms: When it was recorded, wall time.
        incarnation: The daemon's run.
        digest: Digest of the state, 16 hexadecimal digits.
        objects: Kind to state to number of objects.
        held: What was registered or held: layouts, arenas, engines, leases, units, jobs.
        arena_bytes: Bytes of all arenas.
        disk_bytes: Bytes of all live records.
        problem: Why nothing behind it can be told; None if that was not asked for.
    """

    seq: int
    time_ms: int
    incarnation: int
    digest: str
    objects: dict[str, dict[str, int]]
    held: dict[str, int]
    arena_bytes: int
    disk_bytes: int
    problem: Problem | None


def past_at(data: Path, seq: int | None, progress: Callable[[int], object]) -> Past:
    """Return what the cache was after event `seq`, or after the last one before the damage if that comes first.

    Args:
        data: The data directory.
        seq: An event of the log; None for the last one.
        progress: Called with the seq that the replay has reached, now and then.

    Raises:
        LogVersionError: The log was written by a newer kvledger.
        EventError: An event is of a newer form.
    """
    io = RealLogIO()
    state, reached, time_ms = State(CAPLESS), 0, 0
    problem = None
    try:
        state, reached, _ = origin(io, data)
        for logged in read_events(io, log_directory(data), from_seq=reached + 1, through_seq=seq):
            entry = apply_logged(log_directory(data), state, logged)
            reached, time_ms = logged.seq, entry.time_ms
            if reached % PROGRESS_EVENTS == 0:
                progress(reached)
    except LogRotError as error:
        problem = error.problem
    return Past(
        seq=reached,
        time_ms=time_ms,
        incarnation=state.incarnation,
        digest=f"{state.digest():016x}",
        objects=_objects(state),
        held=_held(state),
        arena_bytes=state.arena_bytes(),
        disk_bytes=state.disk_bytes,
        problem=problem,
    )


def _objects(state: State) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for cell in state.cells.values():
        known = state.layouts[cell.layout]
        for slot, value in enumerate(cell.states):
            if value != ObjectState.VACANT:
                kind = found.setdefault(known.slot_kinds[slot].name, Counter())
                kind[ObjectState(value).name] += 1
    return {kind: dict(sorted(states.items())) for kind, states in sorted(found.items())}


def _held(state: State) -> dict[str, int]:
    named = ("layouts", "arenas", "engines", "leases", "units", "device_pools", "asked", "jobs")
    return {name: len(getattr(state, name)) for name in named}
