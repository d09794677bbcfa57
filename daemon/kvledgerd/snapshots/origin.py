"""What a replay of the whole log begins with: nothing, or what the retired events had made.

When the oldest events were retired, a snapshot stands in for them: the floor. It lies in the log's archive, beside the
segments that go on from it. Usually it holds the very moment at which the rest begins. On a full disk there is no room
to make one; then the older of the two snapshots that starts begin with is kept there under a second name, and the
events between are still shown but no longer replayed.
"""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from kvledger_storage.log import ARCHIVE_NAME, FrameError, LogIO, LogRotError, Problem, RealLogIO, read_events
from kvledger_storage.log.archive import all_segments
from kvledger_storage.log.beginning import BEGIN_NAME, read_beginning
from kvledger_storage.log.inspection import load_identity
from kvledger_storage.log.segment import first_seq_of, segment_name
from kvledger_storage.snapshot import (
    Snapshot,
    SnapshotError,
    read_snapshots,
    snapshot_lock,
    snapshot_name,
    write_snapshot,
)
from kvledgerd.core.config import CAPLESS, CoreConfig
from kvledgerd.core.state import State
from kvledgerd.replaying import apply_logged
from kvledgerd.snapshots.choice import SNAPSHOT_DIRECTORY
from kvledgerd.snapshots.decode import decode_state
from kvledgerd.snapshots.proof import proven

__all__ = ["Origin", "keep_floor", "make_floor", "origin"]


class Origin(NamedTuple):
    """The state before the first event that can be replayed.

    Attributes:
        state: A state of its own, to be changed by the replay.
        seq: Last event that it holds; the one before the first event of all if it is empty.
        chain: What the frame behind that event names as its previous one, 32 bytes.
    """

    state: State
    seq: int
    chain: bytes


def origin(io: LogIO, data: Path, config: CoreConfig = CAPLESS) -> Origin:
    """Return what a replay of everything that is left begins with.

    Raises:
        FileNotFoundError: There is no log.
        LogRotError: It can not be told where the log begins; its first segment is missing; or events were retired, and
            no whole snapshot stands in for them.
    """
    directory = data / "log"
    identity = load_identity(io, directory)
    if identity is None:
        raise FileNotFoundError(f"{directory}: there is no log here; name the daemon's data directory")
    try:
        kept = read_beginning(io, directory, identity).kept
    except FrameError as error:
        raise LogRotError(_unknown(directory, error)) from error
    names = all_segments(io, directory)
    if names and first_seq_of(names[0]) > kept.seq:
        raise LogRotError(_beheaded(directory, kept.seq, names[0]))
    if kept.seq <= identity.first_seq:
        return Origin(State(config), identity.first_seq - 1, identity.root_chain)
    for floor in _floors(io, data, identity.log_id, kept.seq - 1):
        with suppress(msgspec.MsgspecError, KeyError, ValueError):
            state = decode_state(floor.body, config)
            if state.digest() == floor.digest:
                return Origin(state, floor.seq, floor.chain)
    raise LogRotError(_without_floor(directory, kept.seq))


def make_floor(data: Path, seq: int) -> None:
    """Put a snapshot of the state after event `seq`, the last of its segment, into the archive, unless one is there.

    To be called in a process of its own: it replays everything before that event that is left. That process outlives a
    daemon that is killed, and the next daemon asks for the same.

    Raises:
        BlockingIOError: Another process is at it.
    """
    io = RealLogIO()
    with snapshot_lock(io, _archive(data)) as alone:
        if not alone:
            raise BlockingIOError("another process makes a snapshot for the archive, which is there when it ends")
        begun = origin(io, data)
        if begun.seq < seq and not _is_there(io, data, seq):
            _write_floor(io, data, begun, seq)


def _is_there(io: LogIO, data: Path, seq: int) -> bool:
    identity = load_identity(io, data / "log")
    assert identity is not None, "its origin was read"
    found = read_snapshots(io, _archive(data), identity.log_id)
    return any(not isinstance(one, SnapshotError) and one.seq == seq for one in found)


def _write_floor(io: LogIO, data: Path, begun: Origin, seq: int) -> None:
    for logged in read_events(io, data / "log", from_seq=begun.seq + 1, through_seq=seq):
        apply_logged(data / "log", begun.state, logged)
    after = next(read_events(io, data / "log", from_seq=seq + 1))
    identity = load_identity(io, data / "log")
    assert identity is not None, "its events were read"
    body, digest = proven(begun.state)
    chain = after.frame.previous_chain
    write_snapshot(io, _archive(data), Snapshot(log_id=identity.log_id, seq=seq, chain=chain, digest=digest, body=body))


def keep_floor(data: Path, least: int) -> bool:
    """Keep the oldest whole snapshot that holds event `least` in the archive as well; false if there is none."""
    io = RealLogIO()
    identity = load_identity(io, data / "log")
    floor = next(iter(_floors(io, data, identity.log_id, least)), None) if identity is not None else None
    if floor is None:
        return False
    name = snapshot_name(floor.seq)
    if name not in io.names(_archive(data)):
        with suppress(FileExistsError):
            io.link(data / SNAPSHOT_DIRECTORY / name, _archive(data) / name)
        io.sync_directory(_archive(data))
    return True


def _archive(data: Path) -> Path:
    return data / "log" / ARCHIVE_NAME


def _floors(io: LogIO, data: Path, log_id: bytes, least: int) -> list[Snapshot]:
    """Return the whole snapshots that hold event `least`, oldest first."""
    places = (_archive(data), data / SNAPSHOT_DIRECTORY)
    found = [snapshot for place in places for snapshot in read_snapshots(io, place, log_id)]
    whole = [snapshot for snapshot in found if not isinstance(snapshot, SnapshotError) and snapshot.seq >= least]
    return sorted(whole, key=lambda snapshot: snapshot.seq)


def _unknown(directory: Path, error: FrameError) -> Problem:
    return Problem(
        file=str(directory / BEGIN_NAME),
        offset=error.offset,
        seq=0,
        rule="beginning",
        because="the file is replaced whole, so a crash leaves the old one or the new one",
        expected=f"{error.field}: {error.expected}",
        found=error.found,
        lost="where the log begins, so it can not be told whether all of it is there",
        safe="the events, as far as `kvledger log cat` shows them",
        run_next="restore the file from a backup; if nothing was ever retired, remove it, and it is made anew",
    )


def _beheaded(directory: Path, seq: int, first: str) -> Problem:
    return Problem(
        file=str(directory / segment_name(seq)),
        offset=0,
        seq=seq,
        rule="break",
        because="segments go to the archive, or are retired by an event that the beginning tells",
        expected=f"the segment that begins with seq {seq}, here or in {ARCHIVE_NAME}",
        found=f"no such file before {first}",
        lost=f"the events from seq {seq} to {first_seq_of(first) - 1}, so nothing can be replayed",
        safe="the events, as far as `kvledger log cat` shows them",
        run_next="restore this file from a backup, or start with --on-corrupt=quarantine",
    )


def _without_floor(directory: Path, first_seq: int) -> Problem:
    return Problem(
        file=str(directory / BEGIN_NAME),
        offset=0,
        seq=first_seq,
        rule="floor",
        because=f"events before seq {first_seq} were retired, and no snapshot that holds what they made can be read",
        expected=f"a whole snapshot of seq {first_seq - 1} or later, in {ARCHIVE_NAME} or beside the log",
        found="none",
        lost="what the retired events had made, so the state can not be told",
        safe=f"the events from seq {first_seq} on, which `kvledger log cat` shows",
        run_next="restore the snapshots from a backup; or move the log away, which begins a new one",
    )
