"""An engine that replays a trace over the real core: memory is short, so copies go and move aside."""

from hashlib import blake2b
from typing import Final

from kvledger.errors import CapacityError
from kvledger.layout import Layout
from kvledger.wire.replies import Acquired
from kvledger.wire.requests import Acquire, Release
from kvledger_storage.events import ObjectsEvicted
from kvledgerd.bare_core import BareCore
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.decision import Decision

__all__ = ["Engine"]


class Engine(BareCore):
    """An engine that looks prompts up and stores what was missing.

    Args:
        config: What the core may use.
        layout: What is stored.

    Attributes:
        decisions: Decisions that were made.
        events: Events that were applied.
        evicted: Copies that made room.
        refused: Units for which there was no room.
    """

    def __init__(self, config: CoreConfig, layout: Layout) -> None:
        self.decisions = self.events = self.evicted = self.refused = 0
        self._names: Final[dict[int, bytes]] = {}
        super().__init__(config, layout, "trace")

    def serve(self, blocks: list[int]) -> int:
        """Look a prompt up, store what it lacks, and return how many of its blocks were usable."""
        hashes, size = b"".join(map(self._name, blocks)), self.known.layout.block_tokens
        found = self.ask(Acquire(self.known.number, len(blocks) * size, hashes, leave=0))
        assert isinstance(found, Acquired), f"a verdict, got {found!r}"
        hit = found.usable_tokens // size
        if hit < len(blocks):
            for end in self._ends(found, len(blocks)):
                try:
                    self.store(hashes[: 32 * end], boundary=not self.known.rows_suffice)
                except CapacityError:
                    self.refused += 1
        if found.lease:
            self.ask(Release(found.lease))
        return hit

    def _ends(self, found: Acquired, blocks: int) -> list[int]:
        """Return where units end: where rows suffice, at the end; else at all boundaries that are wanted before it.

        The last block may be a partial one, at whose end no other prompt could resume.
        """
        if self.known.rows_suffice:
            return [blocks]
        size = self.known.layout.block_tokens
        wanted = [at // size for at in found.wanted if not at % size]
        return sorted({end for end in (*wanted, blocks - 1) if 0 < end < blocks})

    def note(self, decision: Decision) -> None:
        """Count what was decided."""
        self.decisions += 1
        self.events += len(decision.events)
        self.evicted += sum(len(event.objects) for event in decision.events if isinstance(event, ObjectsEvicted))

    def _name(self, block: int) -> bytes:
        found = self._names.get(block)
        if found is None:
            found = self._names[block] = blake2b(block.to_bytes(8, "big"), digest_size=32).digest()
        return found
