"""Cuts as runs: those of neighbouring blocks are joined, and what lies behind the matched path is named.

Runs of blocks follow each other and never overlap. A residue's run begins at its block and so lies within one of them;
it stays a run of its own, since what cut the residue need not be what cut the block.
"""

from kvledger.verdict import Code, Cut, Layer
from kvledgerd.core.choice import Judged
from kvledgerd.core.court import Court
from kvledgerd.core.identity import foreign_layout, mismatch

__all__ = ["beyond", "distinct", "joined"]


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
    """Name residues of one length that fell for one reason once: prompts differ, what cut them does not."""
    return list({(cut.start, cut.end, *_reason(cut)): cut for cut in cuts}.values())


def _reason(cut: Cut) -> tuple[Layer, str, Code]:
    return cut.layer, cut.group, cut.code


def beyond(court: Court, block_tokens: int, offers: list[Judged]) -> list[Cut]:
    """Return what lies behind the matched path: unknown blocks, and tokens after the last whole block without offer."""
    request = court.request
    matched, whole = len(court.path) * block_tokens, request.tokens // block_tokens * block_tokens
    cuts = []
    if whole > matched:
        other = None if court.path else foreign_layout(court.state.layouts, court.known.tree.root, court.known)
        detail = f"of {whole // block_tokens} blocks {len(court.path)} are known"
        code, layer = Code.NO_MATCH, Layer.BLOCK
        if other is not None:
            code, detail = mismatch(other.layout, court.known.layout)
            layer = Layer.IDENTITY
        cuts.append(Cut(matched, whole, layer, "", None, code, detail))
    if request.tokens > whole and not any(o.position > whole for o in offers):
        cuts.append(_short_of_a_block(court, whole, block_tokens))
    return cuts


def _short_of_a_block(court: Court, whole: int, block_tokens: int) -> Cut:
    detail = f"a block is {block_tokens} tokens"
    coarse = court.geometry.coarsest
    if coarse is not None and court.geometry.groups[coarse].page_tokens == block_tokens:
        detail += f", as {court.geometry.groups[coarse].name} stores them"
    other = None if court.path else foreign_layout(court.state.layouts, court.known.tree.root, court.known)
    if other is not None:
        code, detail = mismatch(other.layout, court.known.layout)
        return Cut(whole, court.request.tokens, Layer.IDENTITY, "", None, code, detail)
    return Cut(whole, court.request.tokens, Layer.BLOCK, "", None, Code.BELOW_BLOCK, detail)
