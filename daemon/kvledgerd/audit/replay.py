"""Replaying a log from outside: no lock, no daemon, beside a running one if there is one."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kvledger.errors import NotFoundError
from kvledger_storage.events import Event, decode
from kvledger_storage.log import LogIO, LogRotError, Problem, RealLogIO, damage_at_end, read_events
from kvledger_storage.log.archive import all_segments
from kvledger_storage.log.identity import ID_NAME
from kvledgerd.core.config import CAPLESS
from kvledgerd.core.state import State
from kvledgerd.replaying import apply_logged
from kvledgerd.snapshots.origin import origin

__all__ = ["Damage", "Moment", "last_state", "log_directory", "moments", "replay_all"]

Damage = list[Problem]
"""Takes the damaged place of a log, if there is one; what was told before it is whole."""


class Moment(NamedTuple):
    """One event of the log, and the state just before it."""

    seq: int
    time_ms: int
    actor: str
    event: Event
    state: State


def log_directory(data: Path) -> Path:
    """Return the directory of the log in a data directory.

    Raises:
        NotFoundError: There is none.
    """
    directory = data / "log"
    if not (directory / ID_NAME).is_file() and not all_segments(RealLogIO(), directory):
        remedy = "name the data directory of a daemon, the one that holds the folder log"
        raise NotFoundError(f"there is no log in {data}", field="data", remedy=remedy)
    return directory


def moments(data: Path, damage: Damage | None = None) -> Iterator[Moment]:
    """Yield every event of a data directory's log that can be replayed; each is applied after it was looked at.

    Args:
        data: The data directory.
        damage: Where to put the damaged place of a log, which then ends there.

    Raises:
        NotFoundError: there is no log.
        LogError: the log is of a newer version; or damaged or contradictory before its end, and `damage` was not given.
        EventError: an event is of a newer form.
    """
    directory = log_directory(data)
    try:
        yield from _replayed(RealLogIO(), data, directory)
    except LogRotError as error:
        if damage is None:
            raise
        damage.append(error.problem)


def _replayed(io: LogIO, data: Path, directory: Path) -> Iterator[Moment]:
    state, seq, _ = origin(io, data)
    for logged in read_events(io, directory, from_seq=seq + 1):
        entry = decode(logged.event)
        yield Moment(logged.seq, entry.time_ms, entry.actor, entry.event, state)
        apply_logged(directory, state, logged)
    problem = damage_at_end(directory, io=io)
    if problem is not None:
        raise LogRotError(problem)


def last_state(data: Path, damage: Damage | None = None) -> State | None:
    """Return the state at the end of the log, None if it has no events; see `moments`."""
    state = None
    for moment in moments(data, damage):
        state = moment.state
    return state


def replay_all(data: Path) -> tuple[State, int]:
    """Return the state that the whole log makes, and the seq of its last event."""
    state, seq = State(CAPLESS), 0
    for moment in moments(data):
        state, seq = moment.state, moment.seq
    return state, seq
