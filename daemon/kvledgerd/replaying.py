"""Applying what a log says, and the words for one that says what can not be.

Every frame of such a log may be whole and every chain unbroken, and still an event does not fit the state that those
before it made, or a checkpoint names another digest. Then a daemon would serve what never was, so it is refused like
damage, and told in the same words: which event, in which file, and what is still true.
"""

from pathlib import Path
from typing import Final

from kvledger_storage.events import Logged, decode
from kvledger_storage.log import Identity, LoggedEvent, LogRotError, Problem, RealLogIO
from kvledger_storage.log.beginning import BEGIN_NAME, read_beginning
from kvledger_storage.log.reader import frame_place
from kvledgerd.core.apply import DigestMismatchError, apply
from kvledgerd.core.state import State
from kvledgerd.core.transitions import TransitionError

__all__ = ["MISFITS", "PROGRESS_EVENTS", "apply_logged", "check_beginning", "contradiction"]

MISFITS: Final = (DigestMismatchError, TransitionError, LookupError, ValueError)
"""What `apply` raises over an event that does not fit."""
PROGRESS_EVENTS: Final = 50_000
"""Events between two calls of `progress`, of whoever replays a log from outside."""


def apply_logged(directory: Path, state: State, logged: LoggedEvent) -> Logged:
    """Apply one event of the log in `directory` and return it with its envelope.

    Raises:
        EventError: It is of a newer form.
        LogRotError: It does not fit the state, which is then of no more use.
    """
    entry = decode(logged.event)
    try:
        apply(state, entry.event)
    except MISFITS as error:
        raise contradiction(directory, logged.seq, error) from error
    return entry


def contradiction(directory: Path, seq: int, error: Exception) -> LogRotError:
    """Return the error for an event of the log in `directory` that does not fit what came before it."""
    path, offset = frame_place(RealLogIO(), directory, seq)
    problem = Problem(
        file=str(path),
        offset=offset,
        seq=seq,
        rule="contradiction",
        because="each event fitted when it was logged, so the log is not the one that was written, or the code another",
        expected=f"an event that fits what the events before seq {seq} made",
        found=f"{type(error).__name__}: {error}",
        lost=f"what the cache was from seq {seq} on",
        safe=f"what it was before, which `kvledger log replay --at {seq - 1}` shows; and all events, by `log cat`",
        run_next="start the kvledger that wrote this log, or one in which this is mended, and report it; "
        "or start with --on-corrupt=quarantine, which sets this log aside and begins a new one that names it",
    )
    return LogRotError(problem)


def check_beginning(directory: Path, identity: Identity, state: State) -> None:
    """Compare where the log begins on disk with what its events tell; `state` is the one that all of them made.

    Raises:
        LogRotError: Somebody else moved the log's beginning: no event tells of it.
    """
    found = read_beginning(RealLogIO(), directory, identity).live.seq
    if found > max(state.live_from[0], identity.first_seq):
        raise LogRotError(_moved(directory / BEGIN_NAME, found, state.live_from[0]))


def _moved(path: Path, found: int, told: int) -> Problem:
    return Problem(
        file=str(path),
        offset=0,
        seq=found,
        rule="beginning",
        because="the event that segments are archived is durable before the file that says so is published",
        expected=f"the log to begin at seq {told}, as its events tell",
        found=f"seq {found}",
        lost="what lies between, unless the archive holds it",
        safe="the events that `kvledger log cat` shows",
        run_next="restore the file from a backup, or start with --on-corrupt=quarantine",
    )
