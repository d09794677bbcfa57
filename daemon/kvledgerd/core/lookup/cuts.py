"""Cuts as runs: those of neighbouring blocks are joined, and what lies behind the matched path is named.

Runs of blocks follow each other and never overlap. A residue's run begins at its block and so lies within one of them;
it stays a run of its own, since what cut the residue need not be what cut the block.
"""

from kvledger.counts import counted
from kvledger.verdict import Code, Cut, Layer
from kvledgerd.core.lookup.choice import Judged
from kvledgerd.core.lookup.court import Court
from kvledgerd.core.lookup.identity import foreign_layout, mismatch

__all__ = ["CUTS_SENT", "beyond", "distinct", "joined", "shortened"]

CUTS_SENT = 32


def joined(cuts: list[Cut]) -> list[Cut]:
    """Join neighbouring blocks that fell for one reason; the detail is that of the deepest."""
    runs: list[Cut] = []
    for cut in cuts:
        last = runs[-1] if runs else None
        if last is not None and last.end == cut.start and _reason(last) == _reason(cut):
            runs[-1] = Cut(last.start, cut.end, cut.layer, cut.group, cut.kind, cut.code, cut.detail)
        else:
            runs.append(cut)
    return runs


def distinct(cuts: list[Cut]) -> list[Cut]:
    """Name once what ends at one position for one reason: residues of several prompts, or the prompt itself."""
    return list({(cut.start, cut.end, *_reason(cut)): cut for cut in cuts}.values()) if len(cuts) > 1 else cuts


def shortened(cuts: list[Cut]) -> tuple[list[Cut], int]:
    """Return the longest cuts, longest first, and how many more there are."""
    ranked = sorted(cuts, key=lambda cut: (cut.start - cut.end, cut.start))
    return ranked[:CUTS_SENT], max(len(ranked) - CUTS_SENT, 0)


def _reason(cut: Cut) -> tuple[Layer, str, Code]:
    return cut.layer, cut.group, cut.code


def beyond(court: Court, offers: list[Judged]) -> list[Cut]:
    """Return what lies behind the matched path: unknown blocks, and tokens after the last whole block without offer."""
    size, tokens, matched = court.block_tokens, court.request.tokens, len(court.path)
    whole = tokens // size * size
    cuts = []
    if whole > matched * size:
        detail = f"of {counted(whole // size, 'block')} {matched:,} are known"
        unknown = Cut(matched * size, whole, Layer.BLOCK, "", None, Code.NO_MATCH, detail)
        cuts.append(_foreign(court, unknown) or unknown)
    if tokens > whole and not any(o.position > whole for o in offers):
        cuts.append(court.no_boundary(whole) or _below_block(court, whole))
    return cuts


def _below_block(court: Court, start: int) -> Cut:
    cut = Cut(start, court.request.tokens, Layer.BLOCK, "", None, Code.BELOW_BLOCK, _size_of_block(court))
    return _foreign(court, cut) or cut


def _foreign(court: Court, cut: Cut) -> Cut | None:
    """Return a cut at layer 2 if all that is known of the prompt belongs to another layout."""
    other = None if court.path else foreign_layout(court.state.layouts, court.known.tree.root, court.known)
    if other is None:
        return None
    return Cut(cut.start, cut.end, Layer.IDENTITY, "", None, *mismatch(other.layout, court.known.layout))


def _size_of_block(court: Court) -> str:
    detail = f"a block is {court.block_tokens} tokens"
    coarse = court.geometry.coarsest
    if coarse is not None and court.geometry.groups[coarse].page_tokens == court.block_tokens:
        detail += f", as {court.geometry.groups[coarse].name} stores them"
    return detail
