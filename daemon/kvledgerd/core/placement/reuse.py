"""How soon what is kept is wanted again, learnt from what was; so the policy follows the load and has no knob to turn.

Time is counted in pages of memory that were given out, so age says how much a thing has cost to keep. Of what is used
or stored a sample is remembered by name, in memory or not, and so it is counted at which age things come back, apart
for things that were used never, once, twice or more, four times or more, and so on: a curve for each octave of uses.
From these counts follows what a page is worth that has reached some age: the most hits that keeping it for some further
time would bring, divided by the pages and the time that this takes. That is the index of Gittins (1979) for a job of
unknown length, and close to the hit density of Beckmann, Chen and Cidon (LHD, NSDI 2018). Where memory is short it
keeps few things long enough to be wanted again, where it is not it comes out as least recently used. Counting begins
with the first use, since memory is often short for the first time when a quarter of what is to be learnt has passed;
but only few names are watched then, and the oldest is worth least until something has to go.

The sample is a ring of at most `RING` names in the order of their last use. It has to reach back `REACH` times as far
as what is kept; where it does not, half of the names are left out from then on. Everything is integers and follows from
events, so that a replay comes to the same choices. docs/eviction.md holds the experiments.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise

import xxhash

from kvledgerd.core.index import Node
from kvledgerd.core.placement.ghosts import ghost_key

__all__ = [
    "BUCKETS",
    "CLASSES",
    "MASK_MAX",
    "MASK_WATCHING",
    "REACH",
    "RING",
    "Reuse",
    "bucket_of",
    "carried",
    "class_of",
    "drawn_by",
    "name_of",
    "new_mark",
    "time_of",
    "used_again",
]

BUCKETS = 80
"""Ages are told apart by half octaves: 40 octaves of pages are more than any machine writes."""
CLASSES = 9
RING = 8192
REACH = 4
MASK_MAX = 255
MASK_WATCHING = 15
"""One name in sixteen is in the sample as long as nothing has to go: look-ups should not pay for what may never be."""
_USES_MAX = 254
_SEEN_AGAIN = 255
"""Stands in the sample for the uses of a name that was seen again since, and so has another place there."""
_ONE = 1 << 16
_DOUBT = 5
"""As many observations as the general belief weighs against."""
_BELIEF = _ONE // 10
"""Part of what reaches an age that comes back within half an octave, where nothing is known: a constant means LRU."""
_WEIGHED = 1 << 14
"""Returns after which older ones count half."""
_OFTEN = 64
"""Observations after which the worth is reckoned anew."""
_FIRST = 8
"""Returns after which it is reckoned for the first time.

Before, less would have been seen of what is old than of what is young, and nobody knew that it is wanted no more.
"""
_EDGES = [0, 1, *((2 + (bucket & 1)) << bucket // 2 - 1 for bucket in range(2, BUCKETS + 1))]
_ALL = range(BUCKETS)
_WIDTHS = [after - edge for edge, after in pairwise(_EDGES)]


def bucket_of(age: int) -> int:
    """Return the half octave of an age in pages."""
    return min(bisect_right(_EDGES, age), BUCKETS) - 1


def class_of(uses: int) -> int:
    """Return the octave of a number of uses."""
    return min(uses.bit_length(), CLASSES - 1)


_CLASS_OF = bytes(map(class_of, range(2 * _USES_MAX + 1)))
_CLASS_SEEN = _CLASS_OF[:_SEEN_AGAIN] + bytes([CLASSES])
"""Class of each number of uses in the sample, and none of them where a name was seen again."""


def new_mark(now: int, uses: int) -> int:
    """Return the mark of what is stored now, and was used so often before.

    A mark holds the time of the last use, and in a byte each the uses before it was stored and those since.
    """
    return now << 16 | uses << 8


def time_of(mark: int) -> int:
    """Return when the last use was."""
    return mark >> 16


def used_again(mark: int, now: int) -> int:
    """Return a mark after one more use; one at a time counts."""
    if mark >> 16 == now:
        return mark
    return now << 16 | mark & 0xFF00 | min(_USES_MAX, (mark & 255) + 1)


def carried(mark: int, after: int) -> int:
    """Return the mark of a block that bore the uses of what stood behind it, since that was stored."""
    last, uses = (mark if mark >> 16 > after >> 16 else after) >> 16, (mark & 255) + (after & 255)
    return last << 16 | mark & 0xFF00 | min(_USES_MAX, uses)


def name_of(layout: int, node: Node, residue_hash: bytes) -> int:
    """Return the name of a layout's block or boundary, 64 bits; the lowest byte says whether it is in the sample."""
    drawn = drawn_by(node, residue_hash)
    return ghost_key(layout, node, residue_hash) & ~255 | (drawn[8] if drawn else 0)


def drawn_by(node: Node, residue_hash: bytes) -> bytes:
    """Return the hash that says whether something is in the sample: of its residue if it has one, else of its block.

    Any number of boundaries may lie behind one block, or before the first: drawn all or none by that block, those of
    short prompts would fill the sample, and nothing be learnt of longer ones.
    """
    return residue_hash or node.hash


class Reuse:
    """What is known about one sort of a tenant's things: blocks of rows, or states.

    Attributes:
        now: Pages of the tenant's memory that were given out so far.
        active: Something was evicted for want of memory, so it counts what is worth least.
        mask: In the sample are names whose lowest byte has none of these bits.
        span: Pages that the sample has to reach back.
        going: Class times `BUCKETS` plus bucket, worth least first.
        ranks: The place of each in `going`.
    """

    __slots__ = (
        "_at",
        "_grown",
        "_hits",
        "_keys",
        "_observed",
        "_passed",
        "_reached",
        "_returns",
        "_ticks",
        "_uses",
        "active",
        "going",
        "head",
        "mask",
        "now",
        "ranks",
        "span",
        "tail",
    )

    def __init__(self) -> None:
        self.now = self.head = self.tail = self.span = self._grown = 0
        self.active = False
        self.mask = MASK_WATCHING
        self._returns = self._observed = 0
        self._hits = array("Q", bytes(8 * CLASSES * BUCKETS))
        self._reached = array("Q", bytes(8 * CLASSES * BUCKETS))
        self._passed = [0] * BUCKETS
        self._ticks, self._keys, self._uses = array("Q"), array("Q"), bytearray()
        self._at: dict[int, int] = {}
        self.going: list[int] = []
        self.ranks: list[int] = []
        self._rank(self._worths())

    def index(self, mark: int) -> int:
        """Return class and age of a mark as one number: `class_of` its uses and `bucket_of` its age, in one step."""
        age = bisect_right(_EDGES, self.now - (mark >> 16), 0, BUCKETS) - 1
        return _CLASS_OF[(mark >> 8 & 255) + (mark & 255)] * BUCKETS + age

    def rank(self, mark: int) -> int:
        """Return the place in `going` of something with this mark."""
        return self.ranks[self.index(mark)]

    def age_limit(self, index: int) -> int:
        """Return the time before which a last use lies for it to be older than the bucket of an index."""
        return self.now - _EDGES[index % BUCKETS + 1]

    def samples(self, name: bytes) -> bool:
        """Tell whether something is in the sample, by the hash that it is drawn by."""
        return not (name and name[8] & self.mask)

    def wake(self) -> None:
        """Tell from now on what is worth least, by all that was seen so far, and watch more if there is room."""
        self.active, self.mask = True, 0
        self._grow_older()
        self._reckon()

    def see(self, key: int) -> int:
        """Note that something of the sample is used or stored; return how often it was used before, as far as known."""
        if self._grown != self.now:
            self._grow_older()
        uses, at = 0, self._at.get(key)
        if at is not None:
            tick, before = self._ticks[at % RING], self._uses[at % RING]
            if tick == self.now:
                return before
            self._uses[at % RING] = _SEEN_AGAIN
            uses = min(_USES_MAX, before + 1)
            self._hits[_CLASS_OF[before] * BUCKETS + bucket_of(self.now - tick)] += 1
            self._returns += 1
        if self.head - self.tail >= RING:
            self._make_room()
        self._append(key, self.now, uses)
        self._reached[_CLASS_OF[uses] * BUCKETS] += 1
        self._observed += 1
        if self._observed >= _OFTEN and self._observed >= self._returns >> 6:
            self._observed = 0
            self._fade()
            self._reckon()
        return uses

    def _grow_older(self) -> None:
        """Count what of the sample reached the next age since this was called last.

        Much memory is given out at once, so what was seen last mostly reaches many ages in one step: it is told apart
        by its uses once.
        """
        now, end, ticks = self.now, self.head, self._ticks
        counted, counts = (end, end), list[tuple[int, int]]()
        for bucket in range(bisect_right(_EDGES, now, 0, BUCKETS) - 1):
            start, limit = max(self._passed[bucket], self.tail), now - _EDGES[bucket + 1]
            if start < end and ticks[(end - 1) % RING] > limit:
                end = self._first_after(limit, start, end) if ticks[start % RING] <= limit else start
            if counted != (start, end):
                counted, counts = (start, end), self._by_class(start, end)
            for index, count in counts:
                self._reached[index + bucket + 1] += count
            self._passed[bucket] = end
        self._grown = now

    def _first_after(self, limit: int, start: int, end: int) -> int:
        """Return the first of these places whose last use was after `limit`, which that of the first was not."""
        ticks, first, last = self._ticks, start % RING, start % RING + end - start
        if ticks[(start + 1) % RING] > limit:
            return start + 1
        if last > RING and ticks[RING - 1] <= limit:
            return start - first + RING + bisect_right(ticks, limit, 0, last - RING)
        return start - first + bisect_right(ticks, limit, first, min(last, RING))

    def _by_class(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return class times `BUCKETS` and number of the names that have one of these places, class by class."""
        if start == end:
            return []
        first, last = start % RING, start % RING + end - start
        if last == first + 1:
            number = _CLASS_SEEN[self._uses[first]]
            return [(BUCKETS * number, 1)] if number < CLASSES else []
        uses = self._uses[first:last] if last <= RING else self._uses[first:] + self._uses[: last - RING]
        classes = uses.translate(_CLASS_SEEN)
        return [(BUCKETS * number, classes.count(number)) for number in range(CLASSES) if number in classes]

    def _append(self, key: int, tick: int, uses: int) -> None:
        at = self.head % RING
        if at == len(self._ticks):
            self._ticks.append(tick)
            self._keys.append(key)
            self._uses.append(uses)
        else:
            self._ticks[at], self._keys[at], self._uses[at] = tick, key, uses
        self._at[key] = self.head
        self.head += 1

    def _make_room(self) -> None:
        if self.now - self._ticks[self.tail % RING] < self.span and self.mask < MASK_MAX:
            self._thin()
        if self.head - self.tail >= RING:  # also where no name was left out
            if self._uses[self.tail % RING] != _SEEN_AGAIN:
                del self._at[self._keys[self.tail % RING]]
            self.tail += 1

    def _alive(self) -> Iterator[int]:
        return (at for at in range(self.tail, self.head) if self._uses[at % RING] != _SEEN_AGAIN)

    def _thin(self) -> None:
        """Leave out half of the names, and what was used again since."""
        self.mask = self.mask << 1 | 1
        kept = [at for at in self._alive() if not self._keys[at % RING] & self.mask]
        passed = [bisect_left(kept, before) for before in self._passed]
        entries = [(self._keys[at % RING], self._ticks[at % RING], self._uses[at % RING]) for at in kept]
        self._restart(entries, passed)

    def _restart(self, entries: list[tuple[int, int, int]], passed: list[int]) -> None:
        self._ticks, self._keys, self._uses = array("Q"), array("Q"), bytearray()
        self._at, self.head, self.tail, self._passed, self._grown = {}, 0, 0, passed, -1
        for key, tick, uses in entries:
            self._append(key, tick, uses)

    def _reckon(self) -> None:
        """Rank anew, if anybody asks for ranks and something came back by which to rank."""
        if self.active and self._returns >= _FIRST:
            self._rank(self._worths())

    def _fade(self) -> None:
        if self._returns >= _WEIGHED:
            self._returns //= 2
            for counts in (self._hits, self._reached):
                for index, count in enumerate(counts):
                    counts[index] = count >> 1

    def _worths(self) -> list[tuple[int, int, int]]:
        """Return (worth, -bucket, index) of each class and age.

        From old to young: keep for this half octave alone, or as long as the older ones keep too, whichever brings
        more hits for its pages and time. What the older ones keep is what those that do not return would get.
        """
        found = []
        beliefs = [self._part(sum(self._hits[b::BUCKETS]), sum(self._reached[b::BUCKETS]), _BELIEF) for b in _ALL]
        for start in range(0, CLASSES * BUCKETS, BUCKETS):
            stretches: list[tuple[int, int]] = []
            for bucket in reversed(_ALL):
                part = self._part(self._hits[start + bucket], self._reached[start + bucket], beliefs[bucket])
                hits, cost = part, _WIDTHS[bucket] * (_ONE - part // 2)
                while stretches and stretches[-1][0] * cost > hits * stretches[-1][1]:
                    more, longer = stretches.pop()
                    hits += (_ONE - part) * more >> 16
                    cost += (_ONE - part) * longer >> 16
                stretches.append((hits, cost))
                found.append(((hits << 60) // cost, -bucket, start + bucket))
        return found

    @staticmethod
    def _part(hits: int, reached: int, belief: int) -> int:
        """Return which part of what reached an age came back there, in 65,536ths, held against a belief."""
        return min(_ONE, (hits * _ONE + _DOUBT * belief) // (reached + _DOUBT))

    def _rank(self, worths: list[tuple[int, int, int]]) -> None:
        self._rank_by([index for _, _, index in sorted(worths)])

    def _rank_by(self, going: list[int]) -> None:
        self.going = going
        self.ranks = [0] * len(self.going)
        for rank, index in enumerate(self.going):
            self.ranks[index] = rank

    def digest(self) -> int:
        """Return a digest of all that later choices depend on, 64 bits."""
        numbers, columns = self.packed()
        return xxhash.xxh3_64_intdigest(repr(numbers).encode() + b"".join(columns))

    def is_torn(self) -> bool:
        """Tell whether a name has not exactly one place that is not marked, the one that it is filed under."""
        places = [(self._keys[at % RING], at) for at in self._alive()]
        return len(places) != len(self._at) or dict(places) != self._at

    def packed(self) -> tuple[list[int], list[bytes]]:
        """Return numbers and columns from which `unpack` makes the same again.

        Also places whose name was seen again since: they count when room is made, so the sample forgets at the same
        moment whether it went through a snapshot or not.
        """
        passed = [max(0, before - self.tail) for before in self._passed]
        numbers = [self.now, self.mask, self.span, self._returns, self._observed, int(self.active), *passed]
        start, kept = self.tail % RING, self.head - self.tail
        rings = (ring[start : start + kept] + ring[: max(0, start + kept - RING)] for ring in (self._ticks, self._keys))
        uses = self._uses[start : start + kept] + self._uses[: max(0, start + kept - RING)]
        tables = (self._hits, self._reached, array("H", self.going), *rings)
        return numbers, [*(table.tobytes() for table in tables), bytes(uses)]

    def unpack(self, numbers: list[int], columns: list[bytes]) -> None:
        """Become again what was packed."""
        self.now, self.mask, self.span, self._returns, self._observed = numbers[:5]
        self.active = bool(numbers[5])
        hits, reached, going, ticks, keys, uses = columns
        self._hits, self._reached = array("Q", hits), array("Q", reached)
        entries = zip(array("Q", keys), array("Q", ticks), uses, strict=True)
        self._restart(list(entries), numbers[6:])
        self._rank_by(list(array("H", going)))
