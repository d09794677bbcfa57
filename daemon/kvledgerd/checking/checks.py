"""What `kvledger check` finds: invariants of the replayed state, its digest, and the bytes that it speaks of.

A running daemon is not stopped for it, however many objects it holds. It names an event and the digest of its state
right after it, one number that it keeps anyway; this process makes that state by itself, from the newest snapshot and
the log, compares the digest, and walks its own copy. A daemon whose state has left what its log says is found by the
digest, and one whose log leads to a wrong state by the walk.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from kvledger.wire.replies import StatusReport
from kvledgerd.checking.arena_memory import ArenaMemory
from kvledgerd.checking.claims import DiskClaim, MemoryClaim, disk_claims, holds, memory_claims
from kvledgerd.checking.disk_records import DiskRecords
from kvledgerd.checking.following import Followed
from kvledgerd.core.invariants import violations

__all__ = ["Checked", "check"]

LOG_SECONDS = 10.0
"""How long a daemon may take to write an event that it has answered for: session events ride in the next frame."""

Suspect = tuple[MemoryClaim | DiskClaim, str]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found.

    Attributes:
        ok: Whether nothing is wrong.
        seq: The event after which the state was checked.
        digest: Its digest, 16 hexadecimal digits.
        objects: Its objects, reserved ones included.
        violations: Everything that is wrong, each one text for people.
        unchecked: What could not be looked at, and why.
    """

    ok: bool
    seq: int
    digest: str
    objects: int
    violations: list[str]
    unchecked: list[str]


def check(data: Path, live: StatusReport | None, *, deep: bool) -> Checked:
    """Check a data directory, and the daemon that serves from it.

    Args:
        data: The data directory.
        live: What the running daemon says of itself; None leaves it out.
        deep: Whether all bytes are read and compared with their fingerprints.

    Raises:
        NotFoundError: There is no log.
        ServiceError: The daemon does not write this log.
        LogError: The log is damaged, contradicts itself, or is of a newer version.
    """
    followed = Followed(data, newest=live is not None)
    if live is None:
        followed.to_end()
    else:
        followed.to(live.seq, LOG_SECONDS)
    state, seq, digest = followed.state, followed.seq, f"{followed.state.digest():016x}"
    objects, wrong = state.objects, violations(state)
    if live is not None and live.digest != digest:
        wrong.append(f"the daemon has digest {live.digest} after seq {seq}, the log makes {digest}")
    unchecked: list[str] = []
    suspects = [*_on_disk(data, followed, deep=deep)]
    if live is not None:
        suspects += _in_memory(data, followed, unchecked, deep=deep)
    wrong += _still(followed, suspects)
    return Checked(ok=not wrong, seq=seq, digest=digest, objects=objects, violations=wrong, unchecked=unchecked)


def _on_disk(data: Path, followed: Followed, *, deep: bool) -> Iterator[Suspect]:
    records = DiskRecords(data, followed.identity.log_id, deep=deep)
    for claim in disk_claims(followed.state):
        text = records.wrong(claim)
        if text:
            yield claim, text


def _in_memory(data: Path, followed: Followed, unchecked: list[str], *, deep: bool) -> list[Suspect]:
    try:
        pid = int((data / "log" / "lock").read_text(encoding="ascii"))
        memory = ArenaMemory(pid, followed.identity.log_id, deep=deep)
    except (OSError, ValueError) as error:
        unchecked.append(f"memory: {error}; run as the daemon's user or as root to have it checked")
        return []
    with closing(memory):
        found = ((claim, memory.wrong(claim)) for claim in memory_claims(followed.state))
        return [(claim, text) for claim, text in found if text]


def _still(followed: Followed, suspects: Iterable[Suspect]) -> list[str]:
    """Return what still counts once the log was followed to its end: what moved meanwhile is no fault.

    Every event is written before bytes move for it, so what was seen to move stands in the log by now.
    """
    found = list(suspects)
    if found:
        followed.to_end()
    return [text for claim, text in found if holds(followed.state, claim)]
