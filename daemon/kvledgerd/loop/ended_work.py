"""What became of the work of the disk tier: restores, reads ahead of need, offloads, and records that were moved.

Counted from the very events that go into the log, so that the log can always be added up to the same numbers. What the
queues themselves see is something else: a write that found no room is tried again, a read may end well after its
restore was given up, and a copy of a record may come too late to be taken over.
"""

from typing import Final

from kvledger.kinds import Kind
from kvledger_storage.disk_events import MANIFEST, RecordsMoved
from kvledger_storage.events import RestoreFinished
from kvledgerd.core.holdings import RestoreJob
from kvledgerd.core.placement.sureness import MEMORY_KINDS
from kvledgerd.core.state import State
from kvledgerd.core.structure import record_bytes

__all__ = ["EndedWork"]

_ENDS: Final = ("done", "failed")
_CANCELLED: Final = "cancelled"


class EndedWork:
    """Sums over the work that has ended in one incarnation. Each event is taken in before the state forgets its job.

    Args:
        state: The cache; never changed here.
    """

    def __init__(self, state: State) -> None:
        self._state: Final = state
        names = [f"{sort}_{end}.{k.name}" for sort in ("restore", "promotion") for end in _ENDS for k in MEMORY_KINDS]
        names += [_offloads(end) for end in _ENDS]
        names += ["warm_prefixes", "warm_bytes", "cleaned_records", "cleaned_bytes"]
        self._sums: Final = dict.fromkeys(names, 0)

    def restore_finished(self, event: RestoreFinished) -> None:
        """Take in the end of a restore: of each kind whether it brought all that it was to bring."""
        job = self._state.jobs[event.job]
        assert isinstance(job, RestoreJob)
        known, brought = self._state.layouts[job.layout], 0
        said: dict[Kind, set[str]] = {}
        for (cell, slot), error in zip(job.objects, event.errors, strict=True):
            said.setdefault(known.slot_kinds[slot], set()).add(error.partition(":")[0])
            brought += 0 if error else known.length_of(cell, slot)
        for kind, words in said.items():
            if words - {"", _CANCELLED}:
                self._sums[f"{_sort(job)}_failed.{kind.name}"] += 1
            elif _CANCELLED not in words:
                self._sums[f"{_sort(job)}_done.{kind.name}"] += 1
        if job.promotion:
            self._sums["warm_prefixes"] += not any(event.errors)
            self._sums["warm_bytes"] += brought

    def offload_ended(self, *, well: bool) -> None:
        """Take in the end of an offload."""
        self._sums[_offloads("done" if well else "failed")] += 1

    def records_moved(self, event: RecordsMoved) -> None:
        """Take in that copies took the place of their records."""
        for number, slot, _, _ in event.records:
            cell = self._state.cells[number]
            if slot == MANIFEST:
                assert cell.manifest is not None
                length = cell.manifest[2]
            else:
                length = self._state.layouts[cell.layout].stored_length(cell, slot)
            self._sums["cleaned_records"] += 1
            self._sums["cleaned_bytes"] += record_bytes(length)

    def counters(self) -> dict[str, int]:
        """Return the sums by name."""
        return dict(self._sums)


def _sort(job: RestoreJob) -> str:
    return "promotion" if job.promotion else "restore"


def _offloads(end: str) -> str:
    return f"offload_{end}.{Kind.DISK_PREFIX.name}"
