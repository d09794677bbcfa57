"""What can happen to the shares of memory, as it stands in the log: the part of `kvledger_storage.events` about them.

Quotas are set or move, and arenas follow them from one kind to another.
"""

from kvledger.kinds import Kind
from kvledger_storage.event_form import EventForm

__all__ = ["ArenaRekinded", "QuotaMoved", "QuotaSet"]


class ArenaRekinded(EventForm, frozen=True, tag="arena_rekinded.1"):
    """An empty arena left its pool and is being cleared; when the job has its answer, it joins that of another kind."""

    job: int
    arena: int
    kind: Kind


class QuotaMoved(EventForm, frozen=True, tag="quota_moved.1"):
    """Memory is worth more to one kind of a tenant than to another, by what was asked for again after its eviction.

    Attributes:
        tenant: Whose quotas they are.
        source: The kind that gives.
        target: The kind that gets.
        bytes: How much.
    """

    tenant: str
    source: Kind
    target: Kind
    bytes: int


class QuotaSet(EventForm, frozen=True, tag="quota_set.1"):
    """An operator fixed the quota of a kind; with 0 bytes he left it to the load again."""

    tenant: str
    kind: Kind
    bytes: int
