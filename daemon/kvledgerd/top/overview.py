"""What two looks at a daemon's counters tell: occupancy now, and rates in the time between them.

A pure step between the counters and the screen, so that what the screen says can be tested without one. Counters of
a daemon begin at 0 with each incarnation: after a restart between two looks the second stands alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvledger.kinds import Kind
from kvledger.wire.quotas import QuotaInfo
from kvledger.wire.replies import StatusReport

__all__ = ["Hits", "Look", "Occupancy", "Overview", "overview"]

_LANES = ("copy", "disk", "read", "hash", "arena")


class Look(NamedTuple):
    """What a daemon said at one time; `at` is monotonic, seconds."""

    at: float
    report: StatusReport
    quotas: Sequence[QuotaInfo]


class Occupancy(NamedTuple):
    """Memory of one kind, bytes: in use, in its arenas, and what nobody takes from it."""

    kind: str
    live: int
    held: int
    sure: int


class Hits(NamedTuple):
    """Tokens of hits a second: claimed by a hash cache, recoverable, and ready; `kind` is empty for whole hits."""

    kind: str
    hash: float
    recoverable: float
    ready: float


class Overview(NamedTuple):
    """One screen.

    Attributes:
        incarnation: Run of the daemon.
        seq: Last event.
        restarted: Whether it is another incarnation than at the look before.
        seconds: Time between the looks; 0 if there is no earlier one of this incarnation, and then all rates are 0.
        memory: Bytes of all arenas, and their cap.
        disk: Bytes of all records, and their cap.
        kinds: Memory by kind.
        hits: Whole hits first, then by kind.
        rates: Name to number a second.
        counts: Name to number now.
        warnings: What to look into, sentences for people.
    """

    incarnation: int
    seq: int
    restarted: bool
    seconds: float
    memory: tuple[int, int]
    disk: tuple[int, int]
    kinds: list[Occupancy]
    hits: list[Hits]
    rates: dict[str, float]
    counts: dict[str, int]
    warnings: list[str]


def overview(before: Look | None, now: Look) -> Overview:
    """Return what a look tells, with rates since the one before."""
    restarted = before is not None and before.report.incarnation != now.report.incarnation
    since = None if restarted else before
    seconds = now.at - since.at if since else 0.0
    counters = now.report.counters
    past = since.report.counters if since else counters
    rates = {name: (counters[name] - past.get(name, 0)) / seconds if seconds else 0.0 for name in counters}
    return Overview(
        incarnation=now.report.incarnation,
        seq=now.report.seq,
        restarted=restarted,
        seconds=seconds,
        memory=(counters["arena_bytes"], counters["memory_cap_bytes"]),
        disk=(counters["disk_bytes"], counters["disk_cap_bytes"]),
        kinds=[Occupancy(Kind(q.kind).name, q.live_bytes, q.held_bytes, q.sure_bytes) for q in now.quotas],
        hits=[_hits("", rates), *(_hits(kind.name, rates) for kind in Kind if _asked(kind, counters))],
        rates={"decisions": rates["decisions"], "events": rates["log_written_seq"]},
        counts=_counts(counters),
        warnings=_warnings(counters, counters["stored_unusable"] - past["stored_unusable"]),
    )


def _asked(kind: Kind, counters: dict[str, int]) -> bool:
    return bool(counters.get(f"hash_hit_tokens.{kind.name}"))


def _hits(kind: str, rates: dict[str, float]) -> Hits:
    behind = f".{kind}" if kind else ""
    return Hits(kind, *(rates.get(f"{what}_hit_tokens{behind}", 0.0) for what in ("hash", "recoverable", "ready")))


def _counts(counters: dict[str, int]) -> dict[str, int]:
    names = ("objects", "engines", "connections", "leases", "units", "topologies", "queue_commands", "queue_parked")
    lanes = {f"jobs_{lane}": counters[f"jobs_{lane}"] for lane in _LANES if counters.get(f"jobs_{lane}")}
    return {name: counters[name] for name in names} | lanes


def _warnings(counters: dict[str, int], unusable: int) -> list[str]:
    """Return what docs/status.md says to look into, where it is so."""
    told = {
        "decisions ended in an exception: report it as a bug": counters["decision_faults"],
        "topologies read memory that was damaged: their engines must stop": counters["topologies_broken"],
        "units were refused since the last look, for no look-up could use them: see `kvledger log cat`": unusable,
    }
    found = [f"{number:,} {what}" for what, number in told.items() if number]
    if counters["log_spares"] < 2:
        found.append("the log has too few spare segments: the disk under it is full")
    return found
