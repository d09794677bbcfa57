"""Making a snapshot from the older one and the log, in a process that has nothing to do with the daemon.

It reads what the daemon reads after a crash and applies it by the same code, so the daemon never pauses for it, and
each snapshot is a proof of the replay: the digests that the daemon logged are compared on the way.
"""

from pathlib import Path

from kvledger_storage.log import Identity, LoggedEvent, LogIO, RealLogIO, read_events
from kvledger_storage.log.inspection import load_identity
from kvledger_storage.snapshot import Snapshot, snapshot_lock, write_snapshot
from kvledgerd.core.apply import DigestMismatchError
from kvledgerd.replaying import apply_logged
from kvledgerd.snapshots.choice import SNAPSHOT_DIRECTORY, chosen
from kvledgerd.snapshots.origin import origin
from kvledgerd.snapshots.proof import proven

__all__ = ["make_snapshot"]


def make_snapshot(data: Path, *, from_log: bool = False) -> Snapshot | None:
    """Bring the snapshots of a data directory up to date; None if there is nothing new or another process is at it.

    The newest frame is left to the next snapshot: what the frame behind the snapshot names is part of it.

    Args:
        data: The data directory; a daemon may be writing to its log.
        from_log: Begin with the first event that is left, whatever newer snapshots there are.

    Raises:
        LogError: The log is damaged, contradicts itself, or is of a newer version.
        EventError: An event is of a newer form.
        DigestMismatchError: The snapshot makes another state than the one that it was made of.
        FileNotFoundError: There is no log.
    """
    io = RealLogIO()
    identity = load_identity(io, data / "log")
    if identity is None:
        raise FileNotFoundError(f"{data / 'log'}: there is no log here; name the daemon's data directory")
    with snapshot_lock(io, data / SNAPSHOT_DIRECTORY) as alone:
        return _made(io, data, identity, from_log=from_log) if alone else None


def _made(io: LogIO, data: Path, identity: Identity, *, from_log: bool) -> Snapshot | None:
    older = None if from_log else chosen(io, data, identity.log_id, (1 << 64, b""))
    if older is None:
        state, begun, chain = origin(io, data)
    else:
        state, begun, chain = older[1], older[0].seq, older[0].chain
    seq = begun
    frame: list[LoggedEvent] = []
    for logged in read_events(io, data / "log", from_seq=seq + 1):
        if logged.seq == logged.frame.first_seq:
            for event in frame:
                apply_logged(data / "log", state, event)
            frame, seq, chain = [], logged.seq - 1, logged.frame.previous_chain
        frame.append(logged)
    if seq == begun:
        return None
    if state.digest() != state.recomputed_digest():
        raise DigestMismatchError(f"the digest of seq {seq} is not that of the state that was made")
    body, digest = proven(state)
    snapshot = Snapshot(log_id=identity.log_id, seq=seq, chain=chain, digest=digest, body=body)
    write_snapshot(io, data / SNAPSHOT_DIRECTORY, snapshot)
    return snapshot
