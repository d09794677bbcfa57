"""The core without a shell: units are committed at once, their bytes never exist, and all events are kept.

That is how a log of many objects is made in seconds: what recovery reads are events, and these are the real ones.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from kvledger.hashing import ChainHasher, token_bytes
from kvledger.layout import Layout
from kvledger.wire.replies import Committed, Failed, Registered, Reply, Reserved
from kvledger.wire.requests import Boundary, Commit, Put, PutRange, Register, Request, Reserve
from kvledger_storage.events import encode
from kvledgerd.core.apply import apply
from kvledgerd.core.commands import ArenaMade, Ask, Caller, Command, Copied, EngineJoined, Start
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.decide import decide
from kvledgerd.core.decision import CopyIn, Effect, MakeArena
from kvledgerd.core.state import State

__all__ = ["OfflineCore"]

_CONFIG: Final = CoreConfig(memory_bytes=1 << 50, arena_bytes=1 << 30, disk_bytes=1 << 50, max_objects=1 << 40)
_KEY: Final = bytes(32)
_PRINT: Final = bytes(range(16))


class OfflineCore:
    """One engine that commits prompts, and the events of it all.

    Args:
        layout: What it keeps.

    Attributes:
        state: The cache.
        events: Encoded events, decision by decision.
    """

    def __init__(self, layout: Layout) -> None:
        self.state: Final = State(_CONFIG)
        self.events: Final[list[list[bytes]]] = []
        self._caller = Caller(1, 1, "default")
        self._do(Start(1, bytes(16), bytes(16), ()))
        self._do(EngineJoined(bytes(16), "default", 1000, 1, "bench"))
        self._caller = Caller(1, max(self.state.engines), "default")
        registered = self._ask(Register(layout))
        assert isinstance(registered, Registered), f"a layout's number, got {registered!r}"
        self._layout: Final = registered.layout
        self._block_tokens: Final = layout.block_tokens

    def commit(self, tokens: Sequence[int]) -> None:
        """Commit the state of a prompt at its end, which is the end of a block."""
        hashes = ChainHasher(_KEY, self._block_tokens).blocks(token_bytes(tokens))
        reserved = self._ask(Reserve(self._layout, Boundary(hashes, 0, b""), boundary=True))
        assert isinstance(reserved, Reserved), f"a reservation, got {reserved!r}"
        unit = self.state.units[reserved.unit]
        groups = self.state.layouts[self._layout].layout.groups
        missing = [(index, unit.objects[index]) for index in unit.missing()]
        ranges = [PutRange(groups[item.group].kind, index, 0, 0, item.length) for index, item in missing]
        self._ask(Put(reserved.unit, ranges))
        committed = self._ask(Commit(reserved.unit))
        assert isinstance(committed, Committed), f"a commit, got {committed!r}"

    def _ask(self, request: Request) -> Reply | None:
        return self._do(Ask(self._caller, request))

    def _do(self, command: Command) -> Reply | None:
        """Decide and apply until there is an answer; effects are answered as if they had been carried out."""
        decision = decide(self.state, command)
        if decision.events:
            self.events.append([encode(event, 1, "engine:1") for event in decision.events])
        for event in decision.events:
            apply(self.state, event)
        for _, effect in decision.effects:
            self._carry(effect)
        if decision.park is not None:
            assert isinstance(command, Ask), "only requests wait"
            return self._do(replace(command, parked=decision.park.jobs))
        assert not isinstance(decision.reply, Failed), f"refused: {decision.reply!r}"
        return decision.reply

    def _carry(self, effect: Effect) -> None:
        if isinstance(effect, MakeArena):
            self._do(ArenaMade(effect.job, effect.arena))
        elif isinstance(effect, CopyIn):
            prints = tuple((part.index, _PRINT) for part in effect.ranges if part.last)
            self._do(Copied(effect.job, prints))
