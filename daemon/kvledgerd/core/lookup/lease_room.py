"""How many leases one may hold: what a lease names can not make room, so they are bounded by engine and by uid."""

from kvledger.errors import LimitError
from kvledgerd.core.holdings import Engine
from kvledgerd.core.state import State

__all__ = ["require_lease_room"]


def require_lease_room(state: State, engine: Engine) -> None:
    """Refuse another lease to an engine that has its most, or whose uid has with all its engines.

    Raises:
        LimitError: Names the cap.
    """
    if len(engine.leases) >= state.config.max_leases:
        raise LimitError(f"{len(engine.leases)} leases are held", field="max_leases", remedy="release leases")
    most = state.config.uid_leases
    if len(state.leases) < most:  # the usual case, in which nobody need be counted
        return
    mine = (one for one in state.engines.values() if (one.tenant, one.uid) == (engine.tenant, engine.uid))
    held = sum(len(one.leases) for one in mine)
    if held >= most:
        wrong = f"the engines of uid {engine.uid} hold {held} leases"
        raise LimitError(wrong, field="uid_leases", remedy="release leases, or raise uid_leases")
