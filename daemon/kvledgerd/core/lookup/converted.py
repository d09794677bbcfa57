"""Layer 2 of a verdict once more: what another layout keeps, and a lossless conversion would bring.

A layout that names its page formats can be served with what is stored under another one that holds the same rows. Its
boundaries are offered like those on disk: not ready, to be asked for with `Restore`, which converts them into objects
of the asking layout (`kvledgerd.core.copies.decide_convert`). So an engine reads nothing but its own layout, and the
second look-up finds it ready.

Layouts without page formats, which is most of them, pay nothing for this.
"""

from msgspec.structs import replace

from kvledger.conversions import conversion
from kvledger.verdict import Exactness
from kvledger.wire.requests import Acquire
from kvledgerd.core.holdings import KnownLayout
from kvledgerd.core.lookup.choice import OFFERS_MAX, Choice, Judged
from kvledgerd.core.lookup.judgement import Judgement
from kvledgerd.core.state import State

__all__ = ["alone", "merged", "others"]


def others(state: State, known: KnownLayout) -> list[KnownLayout]:
    """Return the layouts, by number, whose objects convert into those of a layout that may be committed to."""
    if not known.names_formats or known.layout.strict_provenance or not known.epoch.takes_commits(known.layout):
        return []
    return [
        other
        for other in state.layouts.values()
        if other.tree is known.tree
        and other is not known
        and other.names_formats
        and not other.epoch.why_unusable(other.layout)
        and conversion(other.layout, known.layout) is not None
    ]


def alone(request: Acquire) -> Acquire:
    """Return a look-up for what lies in memory and lacks nothing, which is what can be converted."""
    return replace(request, restore=False, replay=False)


def merged(state: State, request: Acquire, own: Judgement, found: list[Judgement]) -> Judgement:
    """Return a verdict with what conversions of others would bring beyond it."""
    have = {(o.position, o.residue_hash) for o in own.offers}
    most = max((o.saved for o in own.offers if not o.residue), default=0)
    offers: dict[tuple[int, bytes], Judged] = {}
    for judgement in found:
        for offer in judgement.offers:
            key = (offer.position, offer.residue_hash)
            if offer.ready and offer.position > most and key not in have:
                offers.setdefault(key, _to_convert(offer))
    if not offers:
        return own
    choice = Choice(request.recompute, state.restored_bytes, state.restored_micros)
    best = max((o.position for o in offers.values() if not o.residue), default=most)
    coverage = [own.coverage, *(judgement.coverage for judgement in found)]
    return own._replace(
        offers=sorted([*own.offers, *offers.values()], key=choice.rank)[: max(OFFERS_MAX, len(own.offers))],
        restorable=sorted({*own.restorable, *(p for judgement in found for p in judgement.restorable)}),
        coverage=[max(tokens) for tokens in zip(*coverage, strict=True)],
        cuts=[cut for cut in own.cuts if cut.end > best],
    )


def _to_convert(offer: Judged) -> Judged:
    node, hashed = offer.node, offer.residue_hash
    return Judged(offer.position, node, offer.residue, hashed, None, Exactness.EXACT, 0, ready=False)
