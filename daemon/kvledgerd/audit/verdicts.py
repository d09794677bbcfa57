"""Verdicts as they fell: what a plain hash cache would have claimed, what was usable, and what cut the rest."""

from collections import deque
from pathlib import Path

import msgspec

from kvledger_storage.events import LookedUp
from kvledgerd.audit.replay import Damage, Moment, moments
from kvledgerd.core.config import DRILL_TENANT

__all__ = ["VerdictRecord", "verdicts"]


class VerdictRecord(msgspec.Struct, frozen=True):
    """One look-up as the log tells it.

    Attributes:
        seq: Its event.
        time_ms: When, ms since 1970.
        engine: Who asked.
        engine_name: What people call it.
        model: Model of the layout.
        tokens: Length of the prompt.
        hash_tokens: What a plain hash cache would have claimed.
        usable_tokens: Deepest boundary that was offered.
        lease: Its lease, 0 on a miss.
        why: The longest cuts, one text each.
    """

    seq: int
    time_ms: int
    engine: int
    engine_name: str
    model: str
    tokens: int
    hash_tokens: int
    usable_tokens: int
    lease: int
    why: list[str]


def verdicts(
    data: Path, *, last: int, misses: bool = False, engine: int = 0, damage: Damage | None = None
) -> list[VerdictRecord]:
    """Return the latest verdicts, oldest first.

    Args:
        data: Data directory.
        last: At most so many.
        misses: Only misses, and those that could offer less than a plain hash cache would have claimed.
        engine: Only this engine's, 0 for all.
        damage: Where to put the damaged place of a log; see `moments`.
    """
    found: deque[VerdictRecord] = deque(maxlen=last)
    for moment in moments(data, damage):
        if not isinstance(moment.event, LookedUp) or moment.state.layouts[moment.event.layout].tenant == DRILL_TENANT:
            continue
        if engine in {0, moment.event.engine}:
            record = _record(moment, moment.event)
            if not misses or not record.lease or record.usable_tokens < record.hash_tokens:
                found.append(record)
    return list(found)


def _record(moment: Moment, event: LookedUp) -> VerdictRecord:
    known, who = moment.state.layouts[event.layout], moment.state.engines.get(event.engine)
    size = known.layout.block_tokens
    depths = [(moment.state.nodes.get(o.node, known.tree.root).depth * size + o.residue) for o in event.offers]
    return VerdictRecord(
        moment.seq,
        moment.time_ms,
        event.engine,
        who.name if who is not None else "",
        known.layout.model,
        event.tokens,
        event.hash_tokens,
        max(depths, default=0),
        event.lease,
        [str(cut) for cut in event.cuts],
    )
