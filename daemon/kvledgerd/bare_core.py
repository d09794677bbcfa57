"""The core without a shell: one engine for which everything is decided and applied, and no byte exists.

So millions of objects cost seconds, and the decisions and events are the real ones. Effects are answered at once, as if
they had been carried out.
"""

from typing import Final

from msgspec.structs import replace

from kvledger.errors import error_from_wire
from kvledger.layout import Layout
from kvledger.wire.replies import Failed, Registered, Reply, Reserved
from kvledger.wire.requests import Boundary, Commit, Put, PutRange, Register, Request, Reserve
from kvledgerd.core.apply import apply
from kvledgerd.core.commands import ArenaMade, Ask, Caller, Command, Copied, EngineJoined, Moved, Start
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.decide import decide
from kvledgerd.core.decision import ClearArena, CopyIn, Decision, Effect, MakeArena, MoveSlots
from kvledgerd.core.state import State

__all__ = ["BareCore"]

_PRINT: Final = bytes(range(16))


class BareCore:
    """One engine over the core.

    Args:
        config: What the core may use.
        layout: What is stored.
        name: What people would call the engine.

    Attributes:
        state: The cache.
        known: The layout as the core knows it.
    """

    def __init__(self, config: CoreConfig, layout: Layout, name: str) -> None:
        self.state: Final = State(config)
        self._caller = Caller(1, 1, "default")
        self._do(Start(1, bytes(16), bytes(16), ()))
        self._do(EngineJoined(bytes(16), "default", 1000, 1, name))
        self._caller = Caller(1, max(self.state.engines), "default")
        registered = self.ask(Register(layout))
        assert isinstance(registered, Registered), f"a layout's number, got {registered!r}"
        self.known: Final = self.state.layouts[registered.layout]

    def ask(self, request: Request) -> Reply | None:
        """Return what the engine is answered.

        Raises:
            KVLedgerError: It was refused.
        """
        return self._do(Ask(self._caller, request))

    def store(self, hashes: bytes, *, boundary: bool) -> None:
        """Commit what is missing of the blocks with these chain hashes, and of the state at their end if that is asked.

        Raises:
            KVLedgerError: It was refused.
        """
        reserved = self.ask(Reserve(self.known.number, Boundary(hashes, 0, b""), boundary=boundary))
        assert isinstance(reserved, Reserved), f"a reservation, got {reserved!r}"
        unit, groups = self.state.units[reserved.unit], self.known.layout.groups
        missing = [(index, unit.objects[index]) for index in unit.missing()]
        ranges = [PutRange(groups[item.group].kind, index, 0, 0, item.length) for index, item in missing]
        if ranges:
            self.ask(Put(reserved.unit, ranges))
        self.ask(Commit(reserved.unit))

    def note(self, decision: Decision) -> None:
        """Take in what was decided, before its events are applied."""

    def _do(self, command: Command) -> Reply | None:
        """Decide and apply until there is an answer."""
        decision = decide(self.state, command)
        self.note(decision)
        for event in decision.events:
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
