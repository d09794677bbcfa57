"""Requests and replies about quotas: how much memory each kind of the caller's tenant is sure of."""

from kvledger.kinds import Kind
from kvledger.wire.fields import Id, Message

__all__ = ["QuotaInfo", "QuotaList", "Quotas", "SetQuota"]


class Quotas(Message, frozen=True, tag="quotas"):
    """Ask for the quotas of all kinds that are kept in memory."""


class SetQuota(Message, frozen=True, tag="set_quota"):
    """Fix the quota of one kind.

    Attributes:
        kind: The kind; `RoutingError` if it is not kept in memory.
        bytes: What it is sure of, rounded up to whole pages; 0 leaves the quota to the load again.
    """

    kind: Kind
    bytes: Id


class QuotaInfo(Message, frozen=True):
    """The share of one kind.

    Attributes:
        kind: The kind.
        sure_bytes: What nobody takes from it.
        fixed: Whether an operator fixed that; otherwise it follows the load.
        held_bytes: Bytes of its arenas.
        live_bytes: What of them is in use.
        missed_tokens: Tokens that were lately computed or restored again since more memory for the kind was lacking.
    """

    kind: Kind
    sure_bytes: Id
    fixed: bool
    held_bytes: Id
    live_bytes: Id
    missed_tokens: Id


class QuotaList(Message, frozen=True, tag="quota_list"):
    """The share of each kind that is kept in memory."""

    quotas: list[QuotaInfo]
