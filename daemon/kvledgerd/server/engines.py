"""Which connections belong to which engine, and when an engine has ended.

An engine is one serving process with its workers. All its connections show the same random id, come from one uid, and
it lives as long as one of them does, or until the one that declared itself leader ends. The core hears of its first
connection and of its end, and when it falls silent or is heard again: what a silent engine holds is taken only when
somebody else wants it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from kvledger.errors import CallerError, KVLedgerError, error_from_wire
from kvledger.wire.replies import Failed, Reply
from kvledger.wire.requests import Hello
from kvledger_storage.events import Process
from kvledgerd.core.commands import Command, ConnectionEnded, EngineGone, EngineJoined, EngineSilent
from kvledgerd.server.peer import Peer

__all__ = ["EngineRegistry", "Member"]

_LOOK_SECONDS_MAX: Final = 2.0
"""Most of the time between two looks for silent engines that counts as time in which the daemon listened."""


class Member(Protocol):
    """A connection, as the registry sees it."""

    @property
    def number(self) -> int:
        """Its number, unique in this incarnation."""

    @property
    def peer(self) -> Peer:
        """Who opened it."""

    @property
    def process(self) -> Process | None:
        """The process at its other end, by pid and start time; None if it can not be told for sure."""

    def joined(self, engine: int) -> None:
        """The engine is known to the core under this number."""

    def refused(self, error: KVLedgerError) -> None:
        """The core did not take the engine."""

    def expelled(self, reason: str) -> None:
        """The engine has ended; the connection has nothing to belong to any more."""


@dataclass(eq=False, slots=True)
class _Engine:
    key: tuple[str, bytes]
    uid: int
    heard: float  # on the registry's own clock, which stands still while the daemon does
    number: int | None = None
    leader: Member | None = None
    silent: bool = False
    members: list[Member] = field(default_factory=list)


class EngineRegistry:
    """All living engines of this incarnation.

    Args:
        post: Puts a command of the shell's own to the writer loop; the second argument takes the reply.
        number_of: Returns the core's number of an engine, by tenant and key.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        post: Callable[[Command, Callable[[Reply | None], None] | None], None],
        number_of: Callable[[str, bytes], int | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._post: Final = post
        self._number_of: Final = number_of
        self._clock: Final = clock
        self._looked = clock()
        self._awake = 0.0
        self._engines: Final[dict[tuple[str, bytes], _Engine]] = {}
        self._of: Final[dict[Member, _Engine]] = {}

    def __len__(self) -> int:
        return len(self._engines)

    def join(self, member: Member, hello: Hello, tenant: str) -> None:
        """Add a connection; its `joined` or `refused` is called, perhaps before this returns.

        Raises:
            CallerError: The id belongs to an engine of another uid, or its leader is another connection.
        """
        key = (tenant, hello.engine)
        engine = self._engines.get(key)
        if engine is None:
            engine = self._engines[key] = _Engine(key, member.peer.uid, self._awake)
            command = EngineJoined(hello.engine, tenant, member.peer.uid, member.peer.pid, hello.name)
            self._post(command, partial(self._entered, engine))
        _require_same(engine, member, hello)
        engine.members.append(member)
        self._of[member] = engine
        if hello.leader:
            engine.leader = member
        if engine.number is not None:
            member.joined(engine.number)

    def heard(self, member: Member) -> None:
        """Note that a connection has said something."""
        engine = self._of.get(member)
        if engine is None:
            return
        engine.heard = self._awake
        if engine.silent and engine.number is not None:
            engine.silent = False
            self._post(EngineSilent(engine.number, silent=False), None)

    def processes(self, member: Member) -> tuple[Process, ...]:
        """Return all processes of a connection's engine that can be told for sure, each once."""
        engine = self._of.get(member)
        members = engine.members if engine is not None else []
        return tuple(dict.fromkeys(one.process for one in members if one.process is not None))

    def find_silent(self, seconds: float) -> None:
        """Tell the core of engines that have said nothing for ``seconds``; to be called each second or so.

        Time in which nobody could be heard counts for nobody: if the daemon was stopped, or its loop held up, all its
        engines would else be silent at once, and lose what they hold to the first that asks.
        """
        now = self._clock()
        self._awake += min(now - self._looked, _LOOK_SECONDS_MAX)
        self._looked = now
        since = self._awake - seconds
        for engine in self._engines.values():
            if engine.heard < since and not engine.silent and engine.number is not None:
                engine.silent = True
                self._post(EngineSilent(engine.number, silent=True), None)

    def leave(self, member: Member, reason: str) -> None:
        """Take a connection away; ends its engine if it was the last one or the leader. Unknown ones are let go."""
        engine = self._of.pop(member, None)
        if engine is None:
            return
        engine.members.remove(member)
        if not engine.members or member is engine.leader:
            self._end(engine, "leader ended: " * (member is engine.leader) + reason)
        elif engine.number is not None:
            self._post(ConnectionEnded(engine.number, member.number, reason), None)

    def _end(self, engine: _Engine, reason: str) -> None:
        del self._engines[engine.key]
        if engine.number is not None:
            self._post(EngineGone(engine.number, reason), None)
        for member in self._dismiss(engine):
            member.expelled(reason)

    def _entered(self, engine: _Engine, reply: Reply | None) -> None:
        number = self._number_of(*engine.key)
        if isinstance(reply, Failed) or number is None:
            error = _refusal(reply)
            self._engines.pop(engine.key, None)
            for member in self._dismiss(engine):
                member.refused(error)
        elif self._engines.get(engine.key) is not engine:
            # All its connections ended before the core had heard of it.
            self._post(EngineGone(number, "ended before it was known"), None)
        else:
            engine.number = number
            for member in list(engine.members):
                member.joined(number)

    def _dismiss(self, engine: _Engine) -> list[Member]:
        members, engine.members = engine.members, []
        for member in members:
            self._of.pop(member, None)
        return members


def _require_same(engine: _Engine, member: Member, hello: Hello) -> None:
    remedy = "make a random 128-bit id for each engine, and share it with its own workers only"
    if engine.uid != member.peer.uid:
        raise CallerError("this engine id can not be used by this user", field="engine", remedy=remedy)
    if hello.leader and engine.leader is not None:
        raise CallerError("this engine has a leader already", field="leader", remedy="declare one connection leader")


def _refusal(reply: Reply | None) -> KVLedgerError:
    if isinstance(reply, Failed):
        return error_from_wire(reply.code, reply.message, reply.field, reply.remedy)
    return error_from_wire("internal", "the engine was not taken", "engine", "look into the daemon's log")
