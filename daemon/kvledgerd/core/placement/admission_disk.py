"""Admission to disk: whether an offload passes no cap, counting what other offloads are writing at this moment.

Nothing makes room here. What an engine asked to have on disk its owner or an operator gives up, or the disk itself is
full; what the daemon wrote by itself is pushed out by what is worth more (`kvledgerd.core.copies.decide_room`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvledger.counts import counted
from kvledger.errors import CapacityError
from kvledger.kinds import Kind
from kvledgerd.core.copies.manifest import largest_manifest
from kvledgerd.core.epoch.epochs import Epoch
from kvledgerd.core.epoch.shares import require_disk_share
from kvledgerd.core.holdings import OffloadJob
from kvledgerd.core.index import Copy, Node
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.placement.caps import Amount, Scopes, first_passed, total
from kvledgerd.core.state import State
from kvledgerd.core.structure import record_bytes

__all__ = ["Writing", "admit_records"]


class Writing(NamedTuple):
    """What is to be written: layout, last whole block, and objects of a boundary with their precisions, if any."""

    known: KnownLayout
    node: Node
    objects: list[Copy]
    precisions: tuple[int, ...] = ()

    def lengths(self) -> list[int]:
        """Return the bytes that each object has on disk."""
        precisions = self.precisions or (0,) * len(self.objects)
        return [
            self.known.length_as(precision, c, s) for (c, s), precision in zip(self.objects, precisions, strict=True)
        ]


def admit_records(state: State, writing: Writing, besides: Sequence[Writing] = ()) -> None:
    """Check that the records of a boundary's objects and its manifest pass no cap on disk.

    Args:
        state: The cache.
        writing: What is to be written.
        besides: What the same decision has begun to write.

    Raises:
        CapacityError: A cap would be passed; names it.
    """
    if not state.config.disk_bytes:
        wrong, remedy = "this daemon keeps nothing on disk", "start it with disk_bytes above 0"
        raise CapacityError(wrong, field="disk_bytes", remedy=remedy)
    known, needs = writing.known, _needs(writing)
    whole = total(needs.values())
    require_disk_share(known.epoch, state.config.disk(), _being_written(state, known.epoch, besides), whole.bytes)
    promised = _promised(state, besides)
    for kind, need in needs.items():
        use, mine = state.records_use(known.tenant, kind), (known.tenant, kind)
        more = Scopes(
            total((need, promised.get(mine, Amount()))),
            total((whole, *(one for (tenant, _), one in promised.items() if tenant == known.tenant))),
            total((whole, *promised.values())),
        )
        passed = first_passed(state.config.disk(), kind, use, more)
        if passed is not None:
            others = f"{passed.wanted} include what is being written for others" if promised else ""
            raise passed.refusal(
                f"{counted(len(writing.objects), 'object')} with a manifest would not fit on disk",
                "evict disk prefixes",
                others,
            )


def _under_way(state: State, besides: Sequence[Writing]) -> Iterator[Writing]:
    for job in state.jobs.values():
        if isinstance(job, OffloadJob):
            yield Writing(state.layouts[job.layout], job.boundary.node, job.objects, job.precisions)
    yield from besides


def _being_written(state: State, epoch: Epoch, besides: Sequence[Writing]) -> int:
    """Return the bytes that the offloads under way may come to take for an epoch."""
    mine = (one for one in _under_way(state, besides) if one.known.epoch is epoch)
    return sum(total(_needs(one).values()).bytes for one in mine)


def _promised(state: State, besides: Sequence[Writing]) -> dict[tuple[str, Kind], Amount]:
    """Return what the offloads under way may come to take, by tenant and kind."""
    found: dict[tuple[str, Kind], Amount] = {}
    for one in _under_way(state, besides):
        for kind, need in _needs(one).items():
            mine = (one.known.tenant, kind)
            found[mine] = total((found.get(mine, Amount()), need))
    return found


def _needs(one: Writing) -> dict[Kind, Amount]:
    """Return what records may take, by kind; the manifest, of whose size little is known, is counted at its largest."""
    known = one.known
    found = {Kind.DISK_PREFIX: Amount(record_bytes(largest_manifest(known, one.node)), 1)}
    for (_, slot), length in zip(one.objects, one.lengths(), strict=True):
        kind = known.slot_kinds[slot]
        used, entries = found.get(kind, Amount())
        found[kind] = Amount(used + record_bytes(length), entries + 1)
    return found
