"""A verdict before it becomes events and a reply."""

from typing import NamedTuple

from kvledger.verdict import Cut
from kvledgerd.core.index import Cell, Node
from kvledgerd.core.lookup.choice import Judged

__all__ = ["Judgement"]


class Judgement(NamedTuple):
    """What judging a look-up found.

    Attributes:
        path: Matched nodes.
        cells: What the layout keeps of each of them.
        hash_tokens: What a plain hash cache would have claimed.
        offers: What may be handed out, best first.
        restorable: Positions of all block boundaries at which the request may resume, ascending.
        coverage: For each group, the deepest block boundary at which it alone is recoverable.
        ready: The same with what needs no reading from disk.
        cuts: Why the rest is not usable, longest first.
    """

    path: list[Node]
    cells: list[Cell | None]
    hash_tokens: int
    offers: list[Judged]
    restorable: list[int]
    coverage: list[int]
    ready: list[int]
    cuts: list[Cut]
