"""Storing one new prompt after another, every unit of the same bytes."""

import itertools
from typing import Final

from kvledger import Cache, RegisteredLayout
from kvledgerd.bench.contents import require
from kvledgerd.bench.layouts import MIB

__all__ = ["Committer"]


class Committer:
    """Stores one new prompt after another.

    Args:
        cache: The cache.
        layout: Blocks of 1 MiB.
        source: The bytes of every unit, a multiple of 1 MiB.

    Attributes:
        source: The same.
    """

    def __init__(self, cache: Cache, layout: RegisteredLayout, source: memoryview) -> None:
        self.source: Final = source
        self._cache: Final = cache
        self._layout: Final = layout
        self._tokens: Final = len(source) // MIB * layout.layout.block_tokens
        self._seeds: Final = itertools.count()
        self._last: list[int] = []

    @property
    def prompt(self) -> list[int]:
        """The prompt that resumes behind the last unit."""
        return [*self._last, 0]

    def commit(self) -> None:
        """Reserve, fill and commit one unit."""
        self._last = [next(self._seeds), *range(1, self._tokens)]
        at = 0
        with self._cache.reserve(self._layout, self._last) as unit:
            for slot in unit.objects:
                unit.put(slot, self.source[at : at + slot.length])
                at += slot.length

    def check(self) -> None:
        """Make sure that the last unit holds what was put, every byte of it.

        Raises:
            WrongAnswerError: It does not.
        """
        with self._cache.acquire(self._layout, self.prompt) as hit:
            require(hit.tokens == self._tokens, f"a hit of {self._tokens} tokens, got: {hit.why}")
            places = {(h.group, h.first_token): h for h in hit}
            at = 0
            for first in range(0, self._tokens, self._layout.layout.block_tokens):
                for spec in self._layout.layout.groups:
                    handle = places[spec.name, first]
                    require(handle.buffer == self.source[at : at + handle.length], f"{handle!r} is what was put")
                    at += handle.length
