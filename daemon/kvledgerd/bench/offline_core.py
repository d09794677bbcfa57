"""A core that never runs full and keeps its events: how a log of many objects is made in seconds.

What recovery reads are events, and these are the real ones.
"""

from collections.abc import Sequence
from typing import Final

from kvledger.hashing import ChainHasher, token_bytes
from kvledger.layout import Layout
from kvledger_storage.events import encode
from kvledgerd.bare_core import BareCore
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.decision import Decision

__all__ = ["OfflineCore"]

_CONFIG: Final = CoreConfig(memory_bytes=1 << 50, arena_bytes=1 << 30, disk_bytes=1 << 50, max_objects=1 << 40)
_KEY: Final = bytes(32)


class OfflineCore(BareCore):
    """One engine that commits prompts, and the events of it all.

    Args:
        layout: What it keeps.

    Attributes:
        events: Encoded events, decision by decision.
    """

    def __init__(self, layout: Layout) -> None:
        self.events: Final[list[list[bytes]]] = []
        super().__init__(_CONFIG, layout, "bench")

    def commit(self, tokens: Sequence[int]) -> None:
        """Commit the state of a prompt at its end, which is the end of a block."""
        hashes = ChainHasher(_KEY, self.known.layout.block_tokens).blocks(token_bytes(tokens))
        self.store(hashes, boundary=True)

    def note(self, decision: Decision) -> None:
        """Keep the events."""
        if decision.events:
            self.events.append([encode(event, 1, "engine:1") for event in decision.events])
