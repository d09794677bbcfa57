"""Layer 2 of a verdict once more: what another layout keeps, and a lossless conversion would bring.

A layout that names its page formats can be served with what is stored under another one that holds the same rows. Its
boundaries are offered like those on disk: not ready, to be asked for with `Restore`, which converts them into objects
of the asking layout (`kvledgerd.core.copies.decide_convert`), once they are back in memory if they lie on disk. So an
engine reads nothing but its own layout, and the second look-up finds it ready. Where the disk stands in the way of a
conversion, the verdict says so as it does of the layout's own boundaries.

Layouts without page formats, which is most of them, pay nothing for this, and however many layouts a tenant registers a
look-up considers those alone that keep something where it could begin to resume, and few of them.
"""

from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from kvledger.conversions import conversion
from kvledger.verdict import Code, Exactness
from kvledger.wire.requests import Acquire
from kvledgerd.core.index import Node
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.choice import OFFERS_MAX, Choice, Judged
from kvledgerd.core.lookup.judgement import Judgement
from kvledgerd.core.state import State

__all__ = ["alone", "may_convert", "merged", "others"]

CONSIDERED_MAX = 64
"""Layouts that one look-up compares with its own: it is one turn of the event loop."""
OTHERS_MAX = 8
"""Layouts by which it is judged besides."""

_OF_THE_DISK = frozenset({Code.DEGRADED, Code.RESTORE_COST})


def may_convert(known: KnownLayout) -> bool:
    """Tell whether something of another layout could become one of this: it names formats and may be committed to."""
    return known.names_formats and not known.layout.strict_provenance and known.epoch.takes_commits(known.layout)


def others(state: State, known: KnownLayout, path: Sequence[Node]) -> list[KnownLayout]:
    """Return the layouts, by number, whose objects along a path convert into those of a layout, `OTHERS_MAX` at most.

    Whatever resumes behind a path has the rows of its first block. A layout without rows may begin anywhere on it.
    """
    if not may_convert(known):
        return []
    begin = path[:1] if known.geometry.rows else path
    there = dict.fromkeys(cell.layout for node in begin for cell in node.cells if cell.layout != known.number)
    named = (other for number in there if (other := state.layouts[number]).names_formats)
    found = [other for other in islice(named, CONSIDERED_MAX) if _converts(other, known)]
    return sorted(found, key=lambda other: other.number)[:OTHERS_MAX]


def _converts(other: KnownLayout, known: KnownLayout) -> bool:
    return not other.epoch.why_unusable(other.layout) and conversion(other.layout, known.layout) is not None


def alone(request: Acquire) -> Acquire:
    """Return a look-up for what lacks nothing, in memory or on disk, which is what can be converted."""
    return replace(request, replay=False)


def merged(state: State, request: Acquire, own: Judgement, found: list[Judgement]) -> Judgement:
    """Return a verdict with what conversions of others would bring beyond it."""
    have = {(o.position, o.residue_hash) for o in own.offers}
    most = max((o.saved for o in own.offers if not o.residue), default=0)
    offers: dict[tuple[int, bytes], Judged] = {}
    for offer in sorted((one for judgement in found for one in judgement.offers), key=_dearness):
        key = (offer.position, offer.residue_hash)
        if offer.position > most and key not in have:
            offers.setdefault(key, _to_convert(offer))
    best = max((o.position for o in offers.values() if not o.residue), default=most)
    why = [cut for judgement in found for cut in judgement.cuts if cut.code in _OF_THE_DISK and cut.end > best]
    if not offers:
        return own._replace(cuts=[*own.cuts, *why])
    choice = Choice(request.recompute, state.restored_bytes, state.restored_micros)
    coverage = [own.coverage, *(judgement.coverage for judgement in found)]
    return own._replace(
        offers=sorted([*own.offers, *offers.values()], key=choice.rank)[: max(OFFERS_MAX, len(own.offers))],
        restorable=sorted({*own.restorable, *(p for judgement in found for p in judgement.restorable)}),
        coverage=[max(tokens) for tokens in zip(*coverage, strict=True)],
        cuts=[*(cut for cut in own.cuts if cut.end > best), *why],
    )


def _dearness(offer: Judged) -> tuple[bool, int]:
    return offer.exactness is not Exactness.EXACT, offer.to_read


def _to_convert(offer: Judged) -> Judged:
    at = (offer.position, offer.node, offer.residue, offer.residue_hash)
    return Judged(*at, None, offer.exactness, 0, ready=False, to_read=offer.to_read)
