"""In which order the residues of a path are judged, and how many of them.

Every prompt that ends inside a block may leave a boundary there, and nothing bounds how many hang on one node: all
short prompts end before the first block. An answer holds few of them, so they are judged from the most valuable on.
"""

from operator import itemgetter

from kvledgerd.core.index import Cell
from kvledgerd.core.kinds.rules import Candidate

__all__ = ["OUTSIDE_MAX", "RESIDUES_MAX", "by_worth"]

RESIDUES_MAX = 512
"""Residues that one look-up judges within what the caller can use: eight times what an answer may offer, so that many
may fall, and still no more work than a prompt of as many blocks."""
OUTSIDE_MAX = 32
"""Residues that one look-up names because the caller can not use them: as many as an answer has cuts."""


def by_worth(
    boundaries: list[tuple[int, Cell]], block_tokens: int, floor: int, limit: int, tokens: int, align: int
) -> tuple[list[Candidate], list[Candidate]]:
    """Return the residues behind `floor` to judge: what the caller can use, and what it can not.

    What lies behind the end of the prompt is another prompt's, and is no candidate at all. The one that stands for most
    tokens comes first; of equals the one that was stored last, for a prompt is more often asked again soon than late.

    Args:
        boundaries: Depth in blocks and cell of every boundary, from the root on, at each node in the order of storing.
        block_tokens: Tokens of a block.
        floor: Tokens that are saved without a residue.
        limit: Tokens that the caller leaves to us.
        tokens: Length of the prompt.
        align: The caller's alignment, tokens.
    """
    placed = [(depth * block_tokens + cell.residue, depth, cell) for depth, cell in boundaries if cell.residue]
    placed.reverse()
    placed.sort(key=itemgetter(0), reverse=True)
    behind = [at for at in placed if floor < at[0] <= tokens]
    inside = [at for at in behind if at[0] <= limit and at[0] % align == 0][:RESIDUES_MAX]
    outside = [at for at in behind if at[0] > limit or at[0] % align][:OUTSIDE_MAX]
    return [Candidate(*at) for at in inside], [Candidate(*at) for at in outside]
