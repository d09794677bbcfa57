"""Decisions about what the scrubber saw: which records are wrong, and which prefixes can no longer be used.

A record is wrong if its bytes are, or if its header says another identity than the state: layout, kind, reservation or
fingerprint. A prefix lacks a part if nothing could resume at it from memory and disk together. Whoever stores the same
prompt next completes it again, so it is given up only when two passes in a row found it lacking. Records of a retired
epoch are dead since that event, and what is dead is no business of the scrubber.
"""

from kvledger.wire.disk_requests import SetScrub
from kvledger.wire.replies import Done, Evicted
from kvledger_storage.disk_events import MANIFEST, ScrubAdvanced, ScrubSwitched
from kvledger_storage.events import Event, PrefixForgotten
from kvledgerd.core.commands import Ask
from kvledgerd.core.copies.decide_records import damaged, difference, lives_at
from kvledgerd.core.copies.parts import find_parts, path_to
from kvledgerd.core.copies.records import drop_effects, records_of
from kvledgerd.core.decision import Ack, Decision
from kvledgerd.core.disk_commands import Scrubbed, SeenRecord
from kvledgerd.core.index import Cell
from kvledgerd.core.state import State
from kvledgerd.core.structure import record_bytes

__all__ = ["scrubbed", "set_scrub"]

LACKING_MAX = 4096
"""Prefixes that lack a part and are remembered for the next pass; a bound on the state."""


def scrubbed(state: State, command: Scrubbed) -> Decision:
    """Drop what is damaged, give up what lacked a part twice, and note how far the scrubber is.

    What is damaged goes first: a prefix is not judged by a state that the same decision is about to change.
    """
    live = [(cell, seen) for seen in command.records if (cell := lives_at(state, seen.cell, seen.slot, seen.ref))]
    wrong = [(cell, seen.slot, why) for cell, seen in live if (why := _wrong(state, cell, seen))]
    lacking = [] if wrong else [cell for cell, seen in live if seen.slot == MANIFEST and _lacks(state, cell)]
    given_up = [cell for cell in lacking if cell.id in state.tier.lacked and not cell.pins]
    repaired = damaged(state, wrong, "scrub")
    size = sum(record_bytes(seen.ref.length) for seen in command.records)
    room = max(0, LACKING_MAX - len(state.tier.lacking))
    kept = tuple(cell.id for cell in lacking if cell not in given_up)[:room]
    advanced = ScrubAdvanced(command.segment, command.offset, len(command.records), size, kept, command.ended_ms)
    forgotten: list[Event] = [PrefixForgotten(cell.id, "scrub: a part of it is nowhere") for cell in given_up]
    dead = [ref for cell in given_up for ref in records_of(state.layouts[cell.layout], cell)]
    effects = (*repaired.effects, *drop_effects(dead))
    return Decision((*repaired.events, *forgotten, advanced), Evicted(len(wrong)), Ack.DURABLE, effects)


def _wrong(state: State, cell: Cell, seen: SeenRecord) -> str:
    if seen.error:
        return seen.error
    different = difference(state, cell, seen)
    return f"it is another record: {different} differ" if different else ""


def _lacks(state: State, cell: Cell) -> bool:
    """Tell whether nothing can resume at a boundary, were all of it restored."""
    known = state.layouts[cell.layout]
    return bool(find_parts(known, path_to(known, cell.node, cell.residue, cell), replayed=True).lacking)


def set_scrub(state: State, ask: Ask, request: SetScrub) -> Decision:
    """Pause the scrubber, let it go on, or have a pass begin at once."""
    del ask
    tier = state.tier
    due = tier.due or request.now
    events = (ScrubSwitched(request.paused, due),) if (tier.paused, tier.due) != (request.paused, due) else ()
    return Decision(events, Done(), Ack.DURABLE)
