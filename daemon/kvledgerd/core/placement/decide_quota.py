"""Decisions about quotas: what each kind of a tenant is sure of, told and fixed. How they follow the load: `growth`."""

from kvledger.errors import CapacityError, RoutingError
from kvledger.kinds import Kind
from kvledger.wire.quotas import QuotaInfo, QuotaList, Quotas, SetQuota
from kvledger_storage.events import Event, QuotaSet
from kvledgerd.core.commands import Ask
from kvledgerd.core.config import PAGE
from kvledgerd.core.decision import Ack, Decision
from kvledgerd.core.placement.ghosts import Ghosts
from kvledgerd.core.placement.growth import MEMORY_KINDS, floor_bytes, held_bytes, sure_bytes
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
    size = request.bytes - request.bytes % PAGE
    _check_sum(state, tenant, kind, size)
    before = state.quotas.get((tenant, int(kind)))
    same = (before.bytes, before.fixed) == (size, True) if before is not None else not size
    events: tuple[Event, ...] = () if same else (QuotaSet(tenant, kind, size),)
    return Decision(events, _list(state, tenant, {kind: size}), Ack.DURABLE)


def _check_sum(state: State, tenant: str, kind: Kind, size: int) -> None:
    """Refuse quotas that no memory could hold together: a promise of more than there is protects nobody."""
    caps, others = state.config.memory(), [one for one in MEMORY_KINDS if one is not kind]
    limit = min(caps.tenant_bytes, caps.bytes)
    fixed = {one: quota.bytes for one in others if (quota := state.quotas.get((tenant, int(one)))) and quota.fixed}
    cap = min(limit - sum(fixed.values()), caps.of(kind).kind.bytes)
    if size > cap:
        promised = ", ".join(f"{one.name} {amount}" for one, amount in fixed.items()) or "none"
        raise CapacityError(
            f"{size} bytes for {kind.name} can not be sure: {cap} are the most, of {limit} others have {promised}",
            field="bytes",
            remedy="fix less, leave another quota to the load by setting it to 0, or raise memory_bytes",
        )


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
