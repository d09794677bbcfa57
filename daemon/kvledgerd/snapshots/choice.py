"""Which snapshot a replay may begin with: the newest one that is whole, of this log, and followed by the next frame."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kvledger_storage.log import LogIO, read_events
from kvledger_storage.snapshot import Snapshot, SnapshotError, read_snapshots
from kvledgerd.collector import collector_paused
from kvledgerd.core.config import CAPLESS, CoreConfig
from kvledgerd.core.state import State
from kvledgerd.snapshots.decode import decode_state

__all__ = ["SNAPSHOT_DIRECTORY", "chosen"]

SNAPSHOT_DIRECTORY: Final = "snapshots"

_log = structlog.get_logger(__name__)


def chosen(
    io: LogIO, data: Path, log_id: bytes, end: tuple[int, bytes], config: CoreConfig = CAPLESS
) -> tuple[Snapshot, State] | None:
    """Return the snapshot to begin with and the state that it holds, None if the log alone has to do.

    Args:
        io: The operating system.
        data: The data directory.
        log_id: Id of its log.
        end: Last seq of the log and the chain behind it.
        config: Caps of the state, if anything is to be decided on it.
    """
    for snapshot in _candidates(io, data, log_id, end):
        try:
            with collector_paused():
                state = decode_state(snapshot.body, config)
                digest = state.digest()
        except (msgspec.MsgspecError, KeyError, ValueError) as error:
            _log.warning("snapshot passed over", seq=snapshot.seq, why=f"{type(error).__name__}: {error}")
            continue
        if digest == snapshot.digest:
            return snapshot, state
        _log.warning("snapshot passed over", seq=snapshot.seq, why="it makes another state than the one it was made of")
    return None


def _candidates(io: LogIO, data: Path, log_id: bytes, end: tuple[int, bytes]) -> Iterator[Snapshot]:
    for found in read_snapshots(io, data / SNAPSHOT_DIRECTORY, log_id):
        if isinstance(found, SnapshotError):
            _log.warning("snapshot passed over", why=str(found))
        elif _next_names(io, data, found.seq, end) != found.chain:
            _log.warning("snapshot passed over", seq=found.seq, why="the log does not go on from it")
        else:
            yield found


def _next_names(io: LogIO, data: Path, seq: int, end: tuple[int, bytes]) -> bytes:
    """Return the chain that stands behind event `seq`, empty if no frame ends there."""
    last_seq, chain = end
    if seq >= last_seq:
        return chain if seq == last_seq else b""
    first = next(read_events(io, data / "log", from_seq=seq + 1), None)
    return first.frame.previous_chain if first is not None and first.frame.first_seq == seq + 1 else b""
