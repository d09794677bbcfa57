"""Ghosts: what was evicted of a kind for want of memory, remembered by name and size alone.

Of each kind of a tenant they are as many bytes, a quarter of its memory. So what of them is stored or restored again is
what that much more memory would have spared: the value of memory for the kind at the margin, in tokens. The margin is
as wide as that because a prompt which is sent again and again misses all of its states until the last of them fits: a
narrow one would see no value in the first step there. Everything follows from events, in integers, so that a replay
remembers the same.
"""

from collections import OrderedDict
from collections.abc import Iterable

from kvledgerd.core.index import Node

__all__ = ["GHOSTS_MAX", "Ghosts", "ghost_key", "outweighs"]

GHOSTS_MAX = 16_384
"""Names that are kept of one kind of one tenant, however small its objects are."""
_MASK = (1 << 64) - 1
_SPREAD = 0x9E37_79B9_7F4A_7C15  # 2^64 over the golden ratio: neighbouring layout numbers differ in many bits


class Ghosts:
    """The ghosts of one kind of one tenant.

    Attributes:
        sizes: Bytes of each ghost by its key, oldest first.
        bytes: Their sum.
        seen: Bytes that were remembered since what was missed last lost half its weight.
        again: Bytes of ghosts that were asked for again, with older ones weighing less.
        missed: Tokens that had to be computed or restored for them, weighed alike.
    """

    __slots__ = ("again", "bytes", "missed", "seen", "sizes")

    def __init__(self) -> None:
        self.sizes: OrderedDict[int, int] = OrderedDict()
        self.bytes = self.seen = self.again = self.missed = 0

    def remember(self, gone: Iterable[tuple[int, int]], most: int) -> None:
        """Remember what went, each a key and bytes, of `most` bytes in all."""
        sizes, total = self.sizes, self.bytes
        for key, size in gone:
            total += size - sizes.pop(key, 0)
            sizes[key] = size
            while sizes and (total > most or len(sizes) > GHOSTS_MAX):
                total -= sizes.popitem(last=False)[1]
            self.seen += size
            if self.seen >= most:
                self.seen, self.again, self.missed = 0, self.again // 2, self.missed // 2
        self.bytes = total

    def recall(self, key: int, tokens: int) -> None:
        """Note that something is wanted again, if it is a ghost; `tokens` is what its absence costs."""
        size = self.sizes.pop(key, 0)
        if size:
            self.bytes -= size
            self.again += size
            self.missed += tokens

    def forgive(self) -> None:
        """Begin to weigh anew, since the kind got what was missed."""
        self.seen = self.again = self.missed = 0


def ghost_key(layout: int, node: Node, residue_hash: bytes) -> int:
    """Return what names a layout's copies of one kind at a block or boundary, 64 bits."""
    place = int.from_bytes(node.hash[:8], "big")
    if residue_hash:
        place ^= int.from_bytes(residue_hash[:8], "little")
    return (place ^ layout * _SPREAD) & _MASK


def outweighs(mine: Ghosts, other: Ghosts, size: int) -> bool:
    """Tell whether an arena of `size` bytes is worth clearly more to one kind than to another.

    A quarter of it was asked for again, and would have spared twice the tokens: less than that is chance, and a quota
    that moves back and forth costs an arena of evictions each time.
    """
    return mine.again * 4 >= size and mine.missed > 2 * other.missed
