"""Every wait has an end.

A request that waits for a job (a copy, an arena, a verification, a write) is answered when its deadline has passed, by
an error that says so. The job goes on: what it brings is there for whoever asks again. Only bytes from an engine's ring
are different, since the engine may use the ring again once it has its answer; see `decide_units.put`.
"""

from msgspec.structs import replace

from kvledger.errors import DeadlineError
from kvledgerd.core.commands import Ask
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.decision import Decision

__all__ = ["bounded", "late"]


def bounded(config: CoreConfig, ask: Ask, decision: Decision) -> Decision:
    """Return a decision that waits no longer than it may.

    Raises:
        DeadlineError: it would wait beyond the deadline, which has passed; nothing of it is done.
    """
    park = decision.park
    if park is None or (not park.jobs and not ask.waited):
        return decision
    if ask.waited:
        raise late(type(ask.body).__name__, config)
    if park.deadline_ms is not None:
        return decision
    return replace(decision, park=replace(park, deadline_ms=config.wait_ms))


def late(name: str, config: CoreConfig) -> DeadlineError:
    """Return what a request of that name is answered after its deadline."""
    return DeadlineError(
        f"{name} has waited for {config.wait_ms} ms, and what it waits for is not done",
        field="wait_seconds",
        remedy="ask again: what was begun goes on, and is joined",
    )
