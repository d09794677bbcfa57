"""Which of the boundaries at which a request may resume is the best, and which are offered with it."""

from typing import NamedTuple

from kvledger.verdict import Exactness
from kvledgerd.core.index import Cell, Node

__all__ = ["OFFERS_MAX", "Judged", "best_blocks"]

OFFERS_MAX = 64


class Judged(NamedTuple):
    """A boundary at which the request may resume."""

    position: int
    node: Node
    residue: int
    residue_hash: bytes
    cell: Cell | None
    exactness: Exactness
    replay: int
    ready: bool

    def rank(self) -> tuple[int, bool, bool, int]:
        """Return the order of choice: most tokens that need no computing, ties to exact, then to what is ready."""
        return (self.replay - self.position, self.exactness is not Exactness.EXACT, not self.ready, self.residue)


def best_blocks(blocks: list[Judged]) -> list[Judged]:
    """Keep the best block boundary, and the best ready one if that is another."""
    ranked = sorted(blocks, key=Judged.rank)
    return ranked[:1] + [b for b in ranked[1:] if b.ready][: 1 if ranked and not ranked[0].ready else 0]
