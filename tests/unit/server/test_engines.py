"""The engine registry: who belongs to whom, and what the core hears of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kvledger.errors import CallerError
from kvledger.wire.replies import Failed
from kvledger.wire.requests import Hello
from kvledgerd.core.commands import ConnectionEnded, EngineGone, EngineJoined, EngineSilent
from kvledgerd.server.engines import EngineRegistry
from kvledgerd.server.peer import Peer

KEY = bytes(16)
OWNER = Peer(10, 1000, 1000)


@dataclass(eq=False)
class Connection:
    """A connection that remembers what it was told."""

    peer: Peer = OWNER
    process: tuple[int, int] | None = None
    number: int = 1
    told: list = field(default_factory=list)

    def joined(self, engine):
        """Remember the number."""
        self.told.append(engine)

    def refused(self, error):
        """Remember the error's code."""
        self.told.append(error.code)

    def expelled(self, reason):
        """Remember the reason."""
        self.told.append(reason)


class Core:
    """Takes commands; the test says when and how they are answered."""

    def __init__(self):
        self.posted, self.answers, self.numbers, self.now = [], [], {}, 0.0
        self.registry = EngineRegistry(self.post, lambda tenant, key: self.numbers.get((tenant, key)), lambda: self.now)

    def post(self, command, answer):
        """Take a command."""
        self.posted.append(command)
        self.answers.append(answer)

    def enter(self, number, reply=None, index=0):
        """Let an engine in under a number, or answer with a refusal."""
        if reply is None:
            command = self.posted[index]
            self.numbers[command.tenant, command.key] = number
        self.answers[index](reply)

    def look(self, seconds):
        """Let time pass, and look for silent engines each second as the daemon does."""
        for _ in range(seconds):
            self.now += 1.0
            self.registry.find_silent(600)


def test_the_core_hears_once_of_each_engine():
    """Only the first connection of an engine is reported, and all of them learn its number."""
    core, first, second = Core(), Connection(), Connection()
    core.registry.join(first, Hello((1, 1), KEY), "t")
    core.registry.join(second, Hello((1, 1), KEY), "t")
    core.enter(5)
    third = Connection()
    core.registry.join(third, Hello((1, 1), KEY), "t")

    assert core.posted == [EngineJoined(KEY, "t", 1000, 10, "")]
    assert (first.told, second.told, third.told) == ([5], [5], [5])


def test_engines_end_with_their_last_connection():
    """The core hears of the engine's end when the last connection has gone, and of the others as they go."""
    core, first, second = Core(), Connection(number=7), Connection(number=8)
    for connection in (first, second):
        core.registry.join(connection, Hello((1, 1), KEY), "t")
    core.enter(5)
    core.registry.leave(first, "gone")
    core.registry.leave(second, "gone")

    assert core.posted[1:] == [ConnectionEnded(5, 7, "gone"), EngineGone(5, "gone")]
    assert len(core.registry) == 0


def test_engines_end_with_their_leader():
    """When the leader goes all other connections of its engine are closed."""
    core, leader, worker = Core(), Connection(), Connection()
    core.registry.join(worker, Hello((1, 1), KEY), "t")
    core.registry.join(leader, Hello((1, 1), KEY, leader=True), "t")
    core.enter(5)
    core.registry.leave(leader, "process ended")

    assert core.posted[1:] == [EngineGone(5, "leader ended: process ended")]
    assert worker.told == [5, "leader ended: process ended"]


def test_engines_that_end_before_they_are_known_are_still_ended():
    """If all connections go while the core is being told, it hears of the end right after the beginning."""
    core, only = Core(), Connection()
    core.registry.join(only, Hello((1, 1), KEY), "t")
    core.registry.leave(only, "gone")
    core.enter(5)

    assert [type(command) for command in core.posted] == [EngineJoined, EngineGone]
    assert only.told == []


def test_refused_engines_are_told():
    """If the core does not take an engine its connections are told why, and the id is free again."""
    core, only = Core(), Connection()
    core.registry.join(only, Hello((1, 1), KEY), "t")
    core.enter(0, Failed("limit", "too many"))

    assert only.told == ["limit"]
    assert len(core.registry) == 0


@pytest.mark.hostile("ID02")
@pytest.mark.parametrize(
    ("peer", "leader", "names"),
    [(Peer(11, 1001, 1000), False, "engine"), (Peer(11, 1000, 1000), True, "leader")],
    ids=["another uid", "a second leader"],
)
def test_ids_are_not_taken_over(peer, leader, names):
    """An engine id can not be used by another uid, nor its lead be taken."""
    core, owner = Core(), Connection()
    core.registry.join(owner, Hello((1, 1), KEY, leader=True), "t")
    with pytest.raises(CallerError) as caught:
        core.registry.join(Connection(peer), Hello((1, 1), KEY, leader=leader), "t")

    assert caught.value.field == names


@pytest.mark.hostile("ID02")
def test_tenants_do_not_share_engines():
    """The same id in another tenant is another engine."""
    core = Core()
    for tenant in ("a", "b"):
        core.registry.join(Connection(), Hello((1, 1), KEY), tenant)

    assert [command.tenant for command in core.posted] == ["a", "b"]


def test_silence_is_reported_once_and_taken_back():
    """An engine that says nothing for long is reported silent once, and heard as soon as it speaks."""
    core, only = Core(), Connection()
    core.registry.join(only, Hello((1, 1), KEY), "t")
    core.enter(5)
    core.look(602)
    core.registry.heard(only)
    core.registry.heard(only)

    assert core.posted[1:] == [EngineSilent(5, silent=True), EngineSilent(5, silent=False)]


def test_an_engine_has_the_processes_of_its_connections():
    """Each process is named once, those that can not be told for sure are left out, and strangers have none."""
    core = Core()
    same = [Connection(process=(10, 5)), Connection(process=(10, 5)), Connection(process=(11, 6)), Connection()]
    for connection in same:
        core.registry.join(connection, Hello((1, 1), KEY), "default")
    assert core.registry.processes(same[0]) == ((10, 5), (11, 6))
    assert core.registry.processes(Connection(process=(12, 7))) == ()


@pytest.mark.hostile("TI02")
@pytest.mark.parametrize("away", [30.0, 700.0, 86_400.0])
def test_a_daemon_that_was_stopped_calls_nobody_silent(away):
    """Time in which the daemon itself stood still counts for nobody, who really is silent is told from it later."""
    core, one, other = Core(), Connection(), Connection()
    core.registry.join(one, Hello((1, 1), KEY), "t")
    core.registry.join(other, Hello((1, 1), bytes(15) + b"1"), "t")
    core.enter(5)
    core.enter(6, index=1)
    core.look(590)
    core.now += away
    core.registry.find_silent(600)
    assert core.posted[2:] == []
    core.registry.heard(one)
    core.look(20)
    assert core.posted[2:] == [EngineSilent(6, silent=True)]
