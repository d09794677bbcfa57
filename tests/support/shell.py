"""A small core and a small log for tests of the shell, and a server in this process that stands on them.

What a request makes the core do is chosen by the number in it, so that a test reads as "renew 2 is durable".
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from kvledger.errors import NotFoundError
from kvledger.wire import replies, requests
from kvledger.wire.framing import REPLY_MAX, Splitter, decode_reply, encode_frame
from kvledger_storage.events import Checkpoint, EngineEntered, EngineLeft, Event, LeaseEnded
from kvledgerd import logs
from kvledgerd.access import AccessRules
from kvledgerd.core.commands import Ask, Caller, Command, EngineGone, EngineJoined
from kvledgerd.core.decision import Ack, Decision, Park, SetGenerations
from kvledgerd.keeper.listener import SOCKET_NAME
from kvledgerd.loop.writer import WriterLoop
from kvledgerd.memory.arenas import ArenaTable
from kvledgerd.memory.rings import RingTable
from kvledgerd.server.admission import Admission
from kvledgerd.server.engines import EngineRegistry
from kvledgerd.server.limits import Most, UserLimits
from kvledgerd.server.outbox import Outbox
from kvledgerd.server.server import Server
from kvledgerd.server.services import ConnectionLimits, Identity, Services

RING_CAP = 1 << 20
WAIT_SECONDS = 60.0
"""For what comes at once on a machine that has nothing else to do; only a test that fails waits so long."""


@dataclass
class SmallCore:
    """Answers by number: renew 0, 1, 2 logs an event of that class; release N waits for job N; abort N fails."""

    engines: dict[bytes, int] = field(default_factory=dict)
    applied: list[Event] = field(default_factory=list)
    decided: list[Command] = field(default_factory=list)
    lookup: replies.Acquired | None = None
    wait_ms: int | None = None

    def decide(self, command: Command) -> Decision:
        """Answer by type and number."""
        self.decided.append(command)
        if isinstance(command, EngineJoined):
            number = len(self.applied) + 1
            return Decision((EngineEntered(number, command.key, command.tenant, command.uid, command.pid, ""),))
        if isinstance(command, EngineGone):
            return Decision((EngineLeft(command.engine, command.reason),))
        if isinstance(command, Ask):
            answer = _ANSWERS.get(type(command.body), SmallCore._status)
            return answer(self, command, command.body)
        return Decision()

    def _renew(self, _ask: Ask, body: requests.Renew) -> Decision:
        return Decision((LeaseEnded(body.lease, "test"),), replies.Done(), Ack(body.lease))

    def _release(self, ask: Ask, body: requests.Release) -> Decision:
        if ask.waited or ask.parked:
            return Decision(reply=replies.Pending(body.lease, int(ask.waited), len(ask.parked)))
        return Decision(park=Park((body.lease,), self.wait_ms))

    def _abort(self, _ask: Ask, body: requests.Abort) -> Decision:
        if body.unit == 1:
            raise NotFoundError("no such unit", field="unit", remedy="reserve one")
        return Decision(reply=replies.Pending(1 // (body.unit - 2), 0, 0))

    def _commit(self, _ask: Ask, body: requests.Commit) -> Decision:
        effects = ((Ack(body.unit % 3), SetGenerations(((body.unit, 0, 1, 1),))),)
        return Decision((LeaseEnded(body.unit, "test"),), replies.Done(), Ack.SESSION, effects)

    def _settle(self, _ask: Ask, body: requests.Settle) -> Decision:
        return Decision(reply=replies.FingerprintList(bytes(body.lease)))

    def _acquire(self, _ask: Ask, _body: requests.Acquire) -> Decision:
        return Decision(reply=self.lookup)

    def _status(self, _ask: Ask, _body: requests.Request) -> Decision:
        return Decision(reply=replies.StatusReport(1, 0, "", {}))

    def apply(self, event: Event) -> None:
        """Keep the event, and the engine that it lets in."""
        self.applied.append(event)
        if isinstance(event, EngineEntered):
            self.engines[event.key] = event.engine

    def encode(self, event: Event, time_ms: int, actor: str) -> bytes:
        """Return something that names the event."""
        return f"{actor} {event!r}".encode()

    def checkpoint(self) -> Event:
        """Return the number of events as the digest."""
        return Checkpoint(len(self.applied))

    def engine_number(self, tenant: str, key: bytes) -> int | None:
        """Return the number that the event gave."""
        return self.engines.get(key)


_ANSWERS: dict[type, Callable[[SmallCore, Ask, Any], Decision]] = {
    requests.Renew: SmallCore._renew,
    requests.Release: SmallCore._release,
    requests.Abort: SmallCore._abort,
    requests.Commit: SmallCore._commit,
    requests.Settle: SmallCore._settle,
    requests.Acquire: SmallCore._acquire,
}


@dataclass
class SmallLog:
    """Takes events; a test says when they are written. With `prompt` they are written and durable at once."""

    prompt: bool = False
    batches: list[tuple[list[bytes], bool]] = field(default_factory=list)
    last_seq: int = 0
    reached: Callable[[Ack, int], None] | None = None

    def submit(self, submissions: Any, *, durable: bool) -> int:
        """Take the events of one turn of the loop."""
        for number, events in enumerate(submissions, 1):
            self.batches.append((list(events), durable and number == len(submissions)))
            self.last_seq += len(events)
        if self.prompt and self.reached is not None:
            loop = asyncio.get_running_loop()
            loop.call_soon(self.reached, Ack.WRITTEN, self.last_seq)
            loop.call_soon(self.reached, Ack.DURABLE, self.last_seq)
        return self.last_seq


@dataclass
class SmallCarrier:
    """Remembers effects."""

    carried: list[Any] = field(default_factory=list)

    def carry(self, effect: Any) -> None:
        """Take one effect."""
        self.carried.append(effect)


def ask(body: requests.Request, connection: int = 1) -> Ask:
    """Return a request as the core gets it."""
    return Ask(Caller(connection, 1, "default", operator=True), body)


@dataclass
class Rig:
    """A server with its parts."""

    path: Path
    core: SmallCore
    log: SmallLog
    carrier: SmallCarrier
    writer: WriterLoop
    services: Services
    server: Server
    fatal: list[BaseException]

    async def client(self, engine: bytes | None = None, **hello: Any) -> Client:
        """Return a connected client that has said hello."""
        client = await Client.connect(self.path)
        await client.hello(engine, **hello)
        return client


@asynccontextmanager
async def serving(
    directory: Path,
    *,
    core: SmallCore | None = None,
    limits: ConnectionLimits | None = None,
    connections: int = 4096,
    in_flight: int = 4096,
    capacity: int = 4096,
    arenas: ArenaTable | None = None,
    frame_bytes: int = 64 << 20,
    prompt: bool = True,
    rules: AccessRules | None = None,
) -> AsyncIterator[Rig]:
    """Serve at `directory / "s"` until the block ends."""
    logs.configure(json=True)
    core, log, carrier, fatal = core or SmallCore(), SmallLog(prompt), SmallCarrier(), []
    outbox = Outbox()
    writer = WriterLoop(core, log, carrier, last_seq=0, on_fatal=fatal.append, capacity=capacity, turn=outbox)
    log.reached = writer.reached
    engines = EngineRegistry(writer.post, core.engine_number)
    users = UserLimits(connections=Most(connections), in_flight=Most(in_flight), frame_bytes=Most(frame_bytes))
    identity = Identity(7, bytes(16), bytes(32))
    rings = RingTable(cap_bytes=RING_CAP, tenant_bytes=64 * RING_CAP, user_bytes=64 * RING_CAP)
    admission = Admission(rules or AccessRules())
    limits = limits or ConnectionLimits()
    services = Services(identity, writer, engines, arenas or ArenaTable(), rings, users, outbox, limits, admission)
    server = Server(services)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(directory / "s"))
    listener.listen(1024)
    await server.start({SOCKET_NAME: listener})
    rig = Rig(directory / "s", core, log, carrier, writer, services, server, fatal)
    try:
        yield rig
    finally:
        await server.stop(0.05)
        await writer.settled()


class Client:
    """A raw client: what it sends and reads is what the test says."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.channel: socket.socket | None = None
        self.splitter = Splitter(REPLY_MAX)
        self.bodies: list[bytes] = []
        self.numbers = iter(range(100, 1 << 30))

    @classmethod
    async def connect(cls, path: Path) -> Self:
        """Return a client that has not said anything yet."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        await asyncio.get_running_loop().sock_connect(sock, str(path))
        return cls(sock)

    async def hello(self, engine: bytes | None = None, **more: Any) -> replies.Reply:
        """Say hello and keep the descriptor socket that comes with the answer."""
        more.setdefault("versions", (1, 1))
        await self.send(requests.Hello(engine=engine or os.urandom(16), **more), number=1)
        data, fds = await _receive_with_descriptor(self.sock)
        self.bodies += self.splitter.feed(data)
        if fds:
            self.channel = socket.socket(fileno=fds[0])
            self.channel.settimeout(0)
        return (await self.reply())[1]

    async def send(self, message: requests.Request | replies.Reply, number: int | None = None) -> int:
        """Send a message and return its id."""
        number = next(self.numbers) if number is None else number
        await self.write(encode_frame(number, message))
        return number

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def reply(self) -> tuple[int, replies.Reply]:
        """Return the next reply with its id; raises EOFError when the daemon has closed."""
        while not self.bodies:
            data = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 16)
            if not data:
                raise EOFError
            self.bodies += self.splitter.feed(data)
        return decode_reply(self.bodies.pop(0))

    async def ask(self, message: requests.Request) -> replies.Reply:
        """Send a request and return its reply."""
        number = await self.send(message)
        found, reply = await self.reply()
        assert found == number, f"the reply has id {found}, the request {number}"
        return reply

    async def is_closed(self) -> bool:
        """Wait for the daemon to close; raises AssertionError if it says something instead."""
        try:
            number, reply = await asyncio.wait_for(self.reply(), WAIT_SECONDS)
        except (EOFError, ConnectionResetError):
            return True
        raise AssertionError(f"closing was expected, {number}: {reply!r} came")

    def close(self) -> None:
        """Close everything."""
        self.sock.close()
        if self.channel is not None:
            self.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _receive_with_descriptor(sock: socket.socket) -> tuple[bytes, list[int]]:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await asyncio.wait_for(ready.wait(), WAIT_SECONDS)
    finally:
        loop.remove_reader(sock)
    data, fds, _, _ = socket.recv_fds(sock, 1 << 16, 4)
    return data, list(fds)


async def until(condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    """Wait until something is true, looked at once a turn."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  what is waited for is behind a socket or in a process
            await asyncio.sleep(0.001)
