"""Which of the boundaries at which a request may resume is the best, and which are offered with it.

What counts is the time that a resume saves: tokens that need no computing, less what has to be read back first. The
rates of both are known only where the caller says how fast it computes and a restore was measured; until then tokens
alone are compared. Of equals the exact one is taken, then the one that lies in memory.

All is compared in integers: a gain is tokens, or with rates microseconds times both rates.
"""

from typing import NamedTuple

from kvledger.verdict import Exactness
from kvledgerd.core.index import Cell, Node

__all__ = ["OFFERS_MAX", "Choice", "Judged"]

OFFERS_MAX = 64
_SECOND = 1_000_000


class Judged(NamedTuple):
    """A boundary at which the request may resume; `to_read` are the bytes that lie on disk alone."""

    position: int
    node: Node
    residue: int
    residue_hash: bytes
    cell: Cell | None
    exactness: Exactness
    replay: int
    ready: bool
    to_read: int = 0

    @property
    def saved(self) -> int:
        """Tokens that need no computing."""
        return self.position - self.replay

    @property
    def is_best(self) -> bool:
        """Whether nothing before it can be better: all of it lies ready, and needs no replay."""
        return self.ready and self.exactness is Exactness.EXACT


class Choice:
    """The order of boundaries for one caller.

    Args:
        recompute: Tokens a second that the caller computes, 0 if it does not say.
        restored: Bytes that restores brought so far.
        micros: How long these took, 0 if none was measured.

    Attributes:
        has_rates: Whether time can be compared; otherwise tokens are.
    """

    def __init__(self, recompute: int, restored: int, micros: int) -> None:
        self.has_rates = bool(recompute and restored and micros)
        self._of_token = _SECOND * restored if self.has_rates else 1
        self._of_byte = micros * recompute if self.has_rates else 0
        self._recompute, self._restored, self._micros = recompute, restored, micros

    def gain(self, judged: Judged) -> int:
        """Return what a resume saves; below 0 if reading takes longer than computing all of it."""
        return judged.saved * self._of_token - judged.to_read * self._of_byte

    def rank(self, judged: Judged) -> tuple[int, bool, bool, int]:
        """Return the order of choice: most saved, ties to exact, then to what is ready."""
        return (-self.gain(judged), judged.exactness is not Exactness.EXACT, not judged.ready, judged.residue)

    def best_rank(self, position: int, residue: int) -> tuple[int, bool, bool, int]:
        """Return a rank that no boundary at a position can pass."""
        return (-position * self._of_token, False, False, residue)

    def kept(self, blocks: list[Judged]) -> list[Judged]:
        """Return the best of block boundaries, which are ascending, and the best ready one if that is another."""
        if not blocks:
            return []
        best = blocks[-1] if blocks[-1].is_best else min(blocks, key=self.rank)
        ready = [] if best.ready else [b for b in blocks if b.ready]
        return [best, *([min(ready, key=self.rank)] if ready else [])]

    def dear(self, judged: list[Judged], blocks: list[Judged]) -> list[Judged]:
        """Return what takes longer to read back than to compute, from the best block that is ready on, or from 0.

        Args:
            judged: What may have to be read.
            blocks: All block boundaries that may be offered.
        """
        if not self.has_rates:
            return []
        least = max((self.gain(b) for b in blocks if b.ready), default=1)
        return [j for j in judged if not j.ready and self.gain(j) < least]

    def floor(self, kept: list[Judged]) -> int:
        """Return how many tokens are too few for any residue, even an exact one in memory, to beat what is kept."""
        if not kept or not kept[-1].ready:
            return 0
        too_few = self.gain(kept[-1]) // self._of_token
        return too_few if kept[-1].exactness is Exactness.EXACT else too_few - 1

    def beats(self, residue: Judged, kept: list[Judged]) -> bool:
        """Tell whether a residue is better than what is kept in any case, or than nothing.

        A boundary on disk is no rival of one in memory: whoever can not wait for the disk resumes there.
        """
        if not kept or (residue.ready and not kept[-1].ready):
            return self.gain(residue) > 0
        return self.rank(residue)[:-1] < self.rank(kept[-1])[:-1]

    def why_dear(self, judged: Judged) -> str:
        """Return what reading and computing a boundary take, for people."""
        read = judged.to_read * self._micros // self._restored // 1000
        compute = judged.saved * 1000 // self._recompute
        return f"reading {judged.to_read} bytes takes {read} ms, computing {judged.saved} tokens {compute} ms"
