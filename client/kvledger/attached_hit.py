"""A hit whose lease another process of the engine holds, as a worker reads it: the same handles, nothing to release.

Generations guard it as they guard the owner's: bytes that were copied are compared when the block is left, so an owner
that released too early costs a miss and never a wrong byte.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from kvledger.arenas import ArenaMaps
from kvledger.layout import Layout
from kvledger.lent_view import LentView
from kvledger.passing import PassedHit

__all__ = ["AttachedHit"]


class AttachedHit(LentView):
    """What `Cache.attach` returns; leaving the `with` block checks all handles whose buffer was taken.

    Args:
        passed: What the owner exported.
        layout: The layout of its objects.
        maps: Arenas of this process's connection.
        is_connected: Tells whether that connection lives.
    """

    def __init__(self, passed: PassedHit, layout: Layout, maps: ArenaMaps, is_connected: Callable[[], bool]) -> None:
        super().__init__(layout, passed.rows, passed.offer, passed.lease, maps, is_connected)
        self._passed = passed

    def __repr__(self) -> str:
        state = "attached" if self._is_connected() else "lost"
        return f"<AttachedHit {state}, {self.tokens} of {self._passed.asked} tokens, {self.exactness.value}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.check()
        finally:
            self._released = True

    @property
    def hash_tokens(self) -> int:
        """Tokens that a plain hash cache would have claimed."""
        return self._passed.hash_tokens
