"""Decisions about quotas: what each kind of a tenant is sure of, told and fixed. How they follow the load: `growth`."""

from kvledger.errors import CapacityError, RoutingError
from kvledger.kinds import Kind
from kvledger.wire.quotas import QuotaInfo, QuotaList, Quotas, SetQuota
from kvledger_storage.events import Event, QuotaSet
from kvledgerd.core.commands import Ask
from kvledgerd.core.decision import Ack, Decision
from kvledgerd.core.placement.ghosts import Ghosts
from kvledgerd.core.placement.pools import paged
from kvledgerd.core.placement.sureness import (
    MEMORY_KINDS,
    firm_bytes,
    floor_bytes,
    held_bytes,
    sure_bytes,
    sure_elsewhere,
)
from kvledgerd.core.state import State

__all__ = ["quotas", "set_quota"]


def quotas(state: State, ask: Ask, request: Quotas) -> Decision:
    """Tell the shares of the caller's tenant."""
    del request
    return Decision(reply=_list(state, ask.caller.tenant, {}))


def set_quota(state: State, ask: Ask, request: SetQuota) -> Decision:
    """Fix the share of one kind, or leave it to the load."""
    tenant, kind = ask.caller.tenant, request.kind
    if kind not in MEMORY_KINDS:
        raise RoutingError(
            f"no memory is kept for {kind.name}, so there is nothing to share",
            field="kind",
            remedy=f"name one of {', '.join(one.name for one in MEMORY_KINDS)}; disk is capped by disk_kind_bytes",
        )
    size = paged(request.bytes)  # up, since a promise of no page at all would end the quota
    given_up = _check_sum(state, tenant, kind, size)
    before = state.quotas.get((tenant, int(kind)))
    same = (before.bytes, before.fixed) == (size, True) if before is not None else not size
    events: list[Event] = [QuotaSet(tenant, other, 0) for other in given_up]
    if not same:
        events.append(QuotaSet(tenant, kind, size))
    return Decision(tuple(events), _list(state, tenant, dict.fromkeys(given_up, 0) | {kind: size}), Ack.DURABLE)


def _check_sum(state: State, tenant: str, kind: Kind, size: int) -> list[Kind]:
    """Refuse a quota that memory could not hold beside all else that is sure: it would protect nobody.

    Returns:
        Kinds that give up what the load moved to them, since it does not fit beside what an operator fixes.

    Raises:
        CapacityError: The quota is larger than what is left.
    """
    if not size:
        return []
    others = [one for one in MEMORY_KINDS if one is not kind]
    firm = {one: amount for one in others if (amount := firm_bytes(state, tenant, one))}
    caps, elsewhere = state.config.memory(), sure_elsewhere(state, tenant)
    room = min(caps.tenant_bytes, caps.bytes - elsewhere)
    left = max(0, min(room - sum(firm.values()), caps.of(kind).kind.bytes))
    if size > left:
        promised = ", ".join(f"{one.name} {amount}" for one, amount in firm.items()) or "none"
        raise CapacityError(
            f"{size} bytes for {kind.name} can not be sure: {left} are left of {min(caps.tenant_bytes, caps.bytes)}; "
            f"other kinds are sure of {promised}, other tenants of {elsewhere}",
            field="bytes",
            remedy=f"fix {left} or less, leave another quota to the load by setting it to 0, or raise memory_bytes",
        )
    if size + sum(sure_bytes(state, tenant, one) for one in others) <= room:
        return []
    return [one for one in others if (quota := state.quotas.get((tenant, int(one)))) and not quota.fixed]


def _list(state: State, tenant: str, news: dict[Kind, int]) -> QuotaList:
    """Return all shares as they are, or will be with what is being set."""
    return QuotaList([_info(state, tenant, kind, news.get(kind)) for kind in MEMORY_KINDS])


def _info(state: State, tenant: str, kind: Kind, new: int | None) -> QuotaInfo:
    quota = state.quotas.get((tenant, int(kind)))
    ghosts = state.ghosts.get((tenant, int(kind))) or Ghosts()
    return QuotaInfo(
        kind,
        sure_bytes(state, tenant, kind) if new is None else new or floor_bytes(state, tenant, kind),
        bool(new) if new is not None else quota is not None and quota.fixed,
        held_bytes(state, tenant, kind),
        state.pool(tenant, kind).live_bytes,
        ghosts.missed,
    )
