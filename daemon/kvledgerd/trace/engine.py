"""One engine over the real core, without a shell: everything is decided and applied, and no byte exists.

The opposite of `kvledgerd.bench.offline_core`, which never runs full and keeps its events: here memory is short, so
copies go and move aside, and of the events only their number is kept.
"""

from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from kvledger.errors import CapacityError, error_from_wire
from kvledger.layout import Layout
from kvledger.wire.replies import Acquired, Failed, Registered, Reply, Reserved
from kvledger.wire.requests import (
    Acquire,
    Boundary,
    Commit,
    Put,
    PutRange,
    Register,
    Release,
    Request,
    Reserve,
)
from kvledger_storage.events import ObjectsEvicted
from kvledgerd.core.apply import apply
from kvledgerd.core.commands import ArenaMade, Ask, Caller, Command, Copied, EngineJoined, Moved, Start
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.decide import decide
from kvledgerd.core.decision import ClearArena, CopyIn, Effect, MakeArena, MoveSlots
from kvledgerd.core.state import State

__all__ = ["Engine"]

_PRINT: Final = bytes(range(16))


class Engine:
    """An engine that looks prompts up and stores what was missing.

    Args:
        config: What the core may use.
        layout: What is stored.

    Attributes:
        state: The cache.
        decisions: Decisions that were made.
        events: Events that were applied.
        evicted: Copies that made room.
        refused: Units for which there was no room.
    """

    def __init__(self, config: CoreConfig, layout: Layout) -> None:
        self.state: Final = State(config)
        self.decisions = self.events = self.evicted = self.refused = 0
        self._caller = Caller(1, 1, "default")
        self._do(Start(1, bytes(16), bytes(16), ()))
        self._do(EngineJoined(bytes(16), "default", 1000, 1, "trace"))
        self._caller = Caller(1, max(self.state.engines), "default")
        registered = self._ask(Register(layout))
        assert isinstance(registered, Registered), f"a layout's number, got {registered!r}"
        self._layout: Final = registered.layout
        self._block_tokens: Final = layout.block_tokens
        self._names: Final[dict[int, bytes]] = {}

    def serve(self, blocks: list[int]) -> int:
        """Look a prompt up, store what it lacks, and return how many of its blocks were usable."""
        hashes = b"".join(map(self._name, blocks))
        found = self._ask(Acquire(self._layout, len(blocks) * self._block_tokens, hashes, leave=0))
        assert isinstance(found, Acquired), f"a verdict, got {found!r}"
        hit = found.usable_tokens // self._block_tokens
        if hit < len(blocks):
            for end in self._ends(found, len(blocks)):
                try:
                    self._store(hashes[: 32 * end])
                except CapacityError:
                    self.refused += 1
        if found.lease:
            self._ask(Release(found.lease))
        return hit

    def _ends(self, found: Acquired, blocks: int) -> list[int]:
        """Return where units end: where rows suffice, at the end; else at all boundaries that are wanted before it.

        The last block may be a partial one, at whose end no other prompt could resume.
        """
        if self.state.layouts[self._layout].rows_suffice:
            return [blocks]
        wanted = [at // self._block_tokens for at in found.wanted if not at % self._block_tokens]
        return sorted({end for end in (*wanted, blocks - 1) if 0 < end < blocks})

    def _store(self, hashes: bytes) -> None:
        suffices = self.state.layouts[self._layout].rows_suffice
        reserved = self._ask(Reserve(self._layout, Boundary(hashes, 0, b""), boundary=not suffices))
        assert isinstance(reserved, Reserved), f"a reservation, got {reserved!r}"
        unit = self.state.units[reserved.unit]
        groups = self.state.layouts[self._layout].layout.groups
        ranges = [
            PutRange(groups[item.group].kind, index, 0, 0, item.length)
            for index, item in enumerate(unit.objects)
            if unit.places[index] is not None
        ]
        if ranges:
            self._ask(Put(reserved.unit, ranges))
        self._ask(Commit(reserved.unit))

    def _name(self, block: int) -> bytes:
        found = self._names.get(block)
        if found is None:
            found = self._names[block] = blake2b(block.to_bytes(8, "big"), digest_size=32).digest()
        return found

    def _ask(self, request: Request) -> Reply | None:
        return self._do(Ask(self._caller, request))

    def _do(self, command: Command) -> Reply | None:
        decision = decide(self.state, command)
        self.decisions += 1
        self.events += len(decision.events)
        for event in decision.events:
            self.evicted += len(event.objects) if isinstance(event, ObjectsEvicted) else 0
            apply(self.state, event)
        for _, effect in decision.effects:
            self._carry(effect)
        if decision.park is not None:
            assert isinstance(command, Ask), "only requests wait"
            return self._do(replace(command, parked=decision.park.jobs))
        if isinstance(decision.reply, Failed):
            failed = decision.reply
            raise error_from_wire(failed.code, failed.message, failed.field, failed.remedy)
        return decision.reply

    def _carry(self, effect: Effect) -> None:
        if isinstance(effect, MakeArena | ClearArena):
            self._do(ArenaMade(effect.job, effect.arena))
        elif isinstance(effect, CopyIn):
            self._do(Copied(effect.job, tuple((part.index, _PRINT) for part in effect.ranges if part.last)))
        elif isinstance(effect, MoveSlots):
            self._do(Moved(effect.job, (_PRINT,) * len(effect.copies)))
