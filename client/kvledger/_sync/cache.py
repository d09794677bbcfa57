# Generated from kvledger/_async/cache.py by scripts/unasync.py; change it there.
"""The public face of the client: one cache, as the engine or adapter that uses it sees it."""

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from kvledger import forks, presets
from kvledger._sync.device_pool import DevicePool
from kvledger._sync.hit import Hit
from kvledger._sync.link import Link
from kvledger._sync.lookup import RESTORE_WAIT_MS_MAX, Lookup, Wish
from kvledger._sync.passed import attach, join
from kvledger._sync.persisting import require_persistable
from kvledger._sync.session import Session
from kvledger._sync.standing import Standing
from kvledger._sync.topology import Topology
from kvledger._sync.unit import Unit
from kvledger._sync.unit_shard import UnitShard
from kvledger._sync.weights import AsyncWeights
from kvledger.attached_hit import AttachedHit
from kvledger.counts import counted
from kvledger.device_view import PoolWish
from kvledger.errors import CallerError
from kvledger.geometry import Geometry
from kvledger.hashing import ExtraKeys
from kvledger.kinds import Kind
from kvledger.layout import Layout
from kvledger.layout_rules import check_layout
from kvledger.layout_types import typed
from kvledger.prompt import Prompt
from kvledger.registered import RegisteredLayout, require_registered
from kvledger.shm import Ring
from kvledger.unit_view import UnitPlan
from kvledger.waiting import Deadline, seconds
from kvledger.wire import requests
from kvledger.wire.replies import (
    Described,
    Evicted,
    Offloaded,
    Pending,
    Reply,
    Reserved,
    Restored,
)
from kvledger.wire.requests import Boundary, Request

__all__ = ["Cache"]

R = TypeVar("R", bound=Reply)

_ENGINE_BYTES = 16


def _random_engine() -> bytes:
    return os.urandom(_ENGINE_BYTES)


class Cache(Standing, AsyncWeights):
    """A connection to the daemon of this node; made by `Cache.open`.

    Threads may share a synchronous cache, tasks of one event loop an asynchronous one; requests do not wait in line.
    It reconnects by itself; what was leased or reserved before is lost then and says so. While nobody listens a call
    fails after a second, and the next ones at once, but for one that tries again every few seconds. After a fork the
    child's cache opens a connection of its own, as another engine.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        forks.watch(self)

    def __repr__(self) -> str:
        session, link = self._link.session, self._link
        if link.closed:
            state = "closed"
        elif session is None:
            state = "disconnected"
        else:
            state = f"connected, incarnation {session.welcome.incarnation}, {session.in_flight} in flight"
        return f"<Cache {link.path}: {state}, {counted(link.layouts, 'layout')}>"

    @classmethod
    def open(
        cls,
        socket_path: str | os.PathLike[str],
        *,
        engine: bytes | None = None,
        leader: bool = False,
        name: str = "",
        staging_bytes: int = 64 << 20,
        tenant: str = "",
        timeout: float = 10.0,
    ) -> Self:
        """Connect to the daemon.

        Args:
            socket_path: Its Unix socket.
            engine: 16 bytes that all connections of one engine show, random if None. Leases belong to the engine.
            leader: The engine, with its leases and reservations, ends when this process does.
            name: What people call the engine.
            staging_bytes: Size of the ring through which bytes are handed in; made at the first reserve.
            tenant: Tenant to act for, which operators may name; everybody else has the one that the daemon's rules say.
            timeout: Seconds that any one call may take, reconnecting included.

        Raises:
            NotFoundError: The daemon has no rule for this user at this socket, or no such tenant for it.
            CallerError: `engine` is not 16 bytes, or the path is too long for a socket.
            DisconnectedError: Nobody listens there, for a second.
            ProtocolError: The daemon speaks another version of the protocol; both are named.
        """
        if engine is not None and len(engine) != _ENGINE_BYTES:
            wrong = f"an engine id of {len(engine)} bytes"
            raise CallerError(wrong, field="engine", remedy=f"pass {_ENGINE_BYTES} random bytes, or None")
        timeout = seconds(timeout, "timeout")
        link = Link(
            os.fspath(socket_path),
            engine=engine or _random_engine(),
            leader=leader,
            name=name,
            staging_bytes=staging_bytes,
            timeout=timeout,
            tenant=tenant,
            new_engine=_random_engine,
        )
        link.connect(Deadline(timeout))
        return cls(link)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def engine(self) -> bytes:
        """The id of this engine, 16 bytes; another one in a forked child."""
        return self._link.engine

    @property
    def incarnation(self) -> int:
        """The run of the daemon that this cache last spoke to, 0 while there is no connection."""
        session = self._link.session
        return session.welcome.incarnation if session else 0

    def close(self) -> None:
        """End the connection; leases and reservations end with the engine's last one. Closing twice is nothing."""
        self._link.close()

    def after_fork_in_child(self) -> None:
        """Let go of the parent's connection; called by the interpreter in a forked child."""
        self._link.after_fork_in_child()

    def register(self, layout: Layout) -> RegisteredLayout:
        """Make a layout known to the daemon, now and after every reconnect.

        Raises:
            LayoutError: A field has a wrong type, the layout contradicts itself or lacks a group of its preset, or the
                daemon refuses it.
        """
        layout = typed(layout)
        check_layout(layout)
        presets.check_complete(layout)
        self._link.remember(layout, self._deadline())
        return RegisteredLayout(layout, Geometry(layout), layout.digest)

    def acquire(
        self,
        layout: RegisteredLayout,
        tokens: Sequence[int],
        *,
        extra: ExtraKeys | None = None,
        leave: int = 1,
        minimum: int = 0,
        align: int = 1,
        restore: bool = True,
        wait: float = 30.0,
        replay: bool = False,
        approx: bool = False,
        recompute: int = 0,
    ) -> Hit:
        """Look a prompt up and lease what is usable, in one round trip.

        Args:
            layout: What `register` returned.
            tokens: The whole prompt.
            extra: Extra keys by source, for example ``{"lora": digest}``; a missing one differs from an empty one.
            leave: Tokens that must be left to compute.
            minimum: Fewer usable tokens than this are a miss.
            align: The caller's own alignment of boundaries, tokens.
            restore: Whether boundaries on disk may be used.
            wait: Seconds to wait for them; when these are over, what is in memory is taken and `why` says pending.
            replay: Whether the caller can recompute the tokens of `Hit.replay` to rebuild windows.
            approx: Whether the caller accepts approximate state.
            recompute: Tokens a second that the caller computes: what lies on disk and takes longer to read than to
                compute, at the rate of the restores so far, is not waited for. 0 if it does not know.

        Returns:
            A hit, falsy if nothing is usable; `why` tells the reason.

        Raises:
            CallerError: `tokens` are no token ids, or the layout is not registered here.
            DisconnectedError: The daemon can not be reached.
            DeadlineError: It did not answer in time.
        """
        require_registered(layout)
        wait = seconds(wait, "wait")
        wish = Wish(leave, minimum, align, restore, replay, approx, recompute)
        return Lookup(self._link, layout, tokens, extra, wish).run(wait)

    def reserve(
        self,
        layout: RegisteredLayout,
        tokens: Sequence[int],
        *,
        boundary: int | None = None,
        start: int = 0,
        extra: ExtraKeys | None = None,
        all_pages: bool = False,
        persist: bool = False,
        approx: bool = False,
    ) -> Unit:
        """Reserve the objects of a unit and lease those that are committed already.

        Args:
            layout: What `register` returned.
            tokens: The prompt, at least up to the unit's end.
            boundary: Position at which requests shall be able to resume; the unit then holds all that this needs.
                None for whole blocks of `tokens` without a boundary.
            start: First token whose rows the unit brings, a multiple of `block_tokens`.
            extra: Extra keys of the prompt.
            all_pages: Whether every window page of the unit's blocks belongs to it.
            persist: Whether `commit` returns only once the boundary is durable on disk, with all that it needs.
            approx: Whether what the unit brings was computed over an approximation, such as a hit that was one.

        Raises:
            CallerError: `start` or `boundary` lies outside, or `start` inside a block; or `persist` without either a
                boundary or named weights.
            CapacityError: A cap would be passed and nothing may be evicted.
            CommitRefusedError: No look-up could ever use such a unit.
        """
        require_registered(layout)
        size, deadline = layout.layout.block_tokens, self._deadline()
        plan = UnitPlan.of(len(tokens), size, boundary=boundary, start=start, all_pages=all_pages)
        if persist:
            require_persistable(layout.layout, boundary)

        def step(session: Session) -> tuple[Ring, Reserved, Boundary]:
            ring = self._link.ring(session, deadline)
            at = self._boundary(session, layout, tokens, plan.end, extra)
            covers = (plan.first_block, plan.boundary, plan.all_pages)
            request = requests.Reserve(session.number(layout), at, *covers, approx)
            return ring, session.request(request, Reserved, deadline), at

        session, (ring, reserved, at) = self._link.retrying(step, deadline)
        return Unit(session, ring, layout, plan, reserved, self._link.timeout, at if persist else None)

    def device_pool(
        self,
        device: str,
        size: int,
        layout: RegisteredLayout,
        *,
        address: int = 0,
        pages: Mapping[str, int] | None = None,
        rank: int = -1,
        memory: bytes | None = None,
        again: int = 0,
    ) -> DevicePool:
        """Set pages on this engine's device aside for kvledger; the bytes stay the engine's own.

        Args:
            device: What the engine calls the device, for example ``"cuda:0"``.
            size: Bytes that are set aside.
            layout: What `register` returned; objects of this layout only will lie there.
            address: Address of the first byte; places are aligned in the address space that it belongs to.
            pages: Pages of each group by name; None shares them out so that they run out together.
            rank: The only rank whose objects will lie there, -1 for all.
            memory: What names the memory itself, at most 64 bytes, for memory that several processes can map: who
                registers it again is refused. None for this engine's own.
            again: `number` of a pool of an older incarnation, of which a topology kept something.

        Raises:
            CallerError: The pages do not fit, or this memory is set aside already; a field that differs is named.
            NotFoundError: No pool `again` waits for this engine.
            LimitError: This engine has too many pools.
        """
        require_registered(layout)
        wish = PoolWish(device, size, address, pages, rank, memory, again)
        return DevicePool.register(self._link, layout, wish)

    def attach(self, hit: bytes) -> AttachedHit:
        """Return a hit that another process of this engine looked up, to read the same bytes here.

        The lease stays with its owner, who releases it when all have read. No round trip, unless an arena is new here.

        Args:
            hit: What `Hit.export` returned there.

        Raises:
            CallerError: These bytes are no hit, or one of another engine, or its layout is not registered here.
            LeaseLost: The daemon has been restarted since.
        """
        return attach(self._link, hit)

    def join(self, ticket: bytes) -> UnitShard:
        """Take a rank's ticket of a unit that another process of this engine reserved, and bring its part from here.

        Args:
            ticket: One of what `Unit.tickets` returned there.

        Raises:
            CallerError: These bytes are no ticket, or one of another engine; its layout is not registered here; or
                another process has joined it.
            GenerationError: The unit has ended meanwhile; the error says how.
            LeaseLost: The daemon has been restarted since.
        """
        return join(self._link, ticket)

    def evict(
        self,
        layout: RegisteredLayout,
        tokens: Sequence[int],
        *,
        kind: Kind,
        boundary: int | None = None,
        extra: ExtraKeys | None = None,
        group: str = "",
        block: int = -2,
        page: int = -1,
        disk: bool = False,
    ) -> Evicted:
        """Drop copies of objects of one kind along a prompt's path.

        Args:
            layout: What `register` returned.
            tokens: The prompt.
            kind: Kind of what is dropped.
            boundary: Position at which the path ends, all of `tokens` if None.
            extra: Extra keys of the prompt.
            group: Only this group; empty for all of the kind.
            block: Only this block; -1 for the boundary's own objects, -2 for the path and the boundary.
            page: Only this page of the block, -1 for all.
            disk: Drop disk copies as well.

        Raises:
            CallerError: `kind` is no `Kind`.
            RoutingError: `group` is of another kind.
        """
        if kind not in list(Kind):
            remedy = f"name one of {', '.join(map(str, Kind.__members__))}, for example Kind.COMPRESSED_KV"
            raise CallerError(f"{kind!r} is no Kind", field="kind", remedy=remedy)
        return self._at(
            layout,
            tokens,
            boundary,
            extra,
            lambda number, at: requests.Evict(kind, number, at, group, block, page, disk),
            Evicted,
        )

    def offload(
        self,
        layout: RegisteredLayout,
        tokens: Sequence[int],
        *,
        boundary: int | None = None,
        extra: ExtraKeys | None = None,
        drop_memory: bool = False,
        exact: bool = False,
    ) -> Offloaded:
        """Write a boundary with everything it needs to disk; durable when it returns.

        Args:
            layout: What `register` returned.
            tokens: The prompt.
            boundary: The position, all of `tokens` if None.
            extra: Extra keys of the prompt.
            drop_memory: Drop the memory copies once the disk copies are durable.
            exact: Keep every bit there is, whatever precision an operator chose for the disk.

        Raises:
            NotFoundError: There is no such boundary.
        """
        return self._at(
            layout,
            tokens,
            boundary,
            extra,
            lambda number, at: requests.Offload(number, at, drop_memory, exact=exact),
            Offloaded,
        )

    def restore(
        self,
        layout: RegisteredLayout,
        tokens: Sequence[int],
        *,
        boundary: int | None = None,
        extra: ExtraKeys | None = None,
        wait: float = 30.0,
    ) -> Restored | Pending:
        """Bring a boundary back from disk into memory, verified; asking again joins the same restore.

        Args:
            layout: What `register` returned.
            tokens: The prompt.
            boundary: The position, all of `tokens` if None.
            extra: Extra keys of the prompt.
            wait: Seconds to wait; 0 only starts it.

        Raises:
            NotFoundError: There is no such boundary.
        """
        require_registered(layout)

        def build(session: Session) -> Request:
            at = self._boundary(session, layout, tokens, boundary, extra)
            return requests.Restore(session.number(layout), at, int(wait * 1000))

        wait = min(seconds(wait, "wait"), RESTORE_WAIT_MS_MAX / 1000)
        session, answer = self._link.ask(build, Deadline(self._link.timeout + wait))
        return answer if isinstance(answer, Pending) else session.narrowed(answer, Restored)

    def describe(
        self,
        layout: RegisteredLayout,
        tokens: Sequence[int],
        *,
        boundary: int | None = None,
        extra: ExtraKeys | None = None,
    ) -> Described:
        """List what is stored along a prompt's path and at its boundary, for people and tests."""
        return self._at(layout, tokens, boundary, extra, requests.Describe, Described)

    def register_topology(self, *hits: Hit | AttachedHit, groups: Sequence[str] = ()) -> Topology:
        """Pin what a captured graph reads in place: it keeps its addresses until the topology is dropped.

        It ends when it is dropped or when all processes of this engine have ended; neither release of the hits nor
        silence, a lost connection or a restart of the daemon does that.

        Args:
            hits: Hits that are not released, of this process or attached; they may be released afterwards.
            groups: Only these groups; all if empty.

        Returns:
            The topology; keep the object as long as the graph, since it holds the maps that the graph reads.

        Raises:
            NotResidentError: Something of it is not in memory, verified; the error lists it.
            LeaseLost: A hit is released or lost.
            CapacityError: Topologies would pin more memory than they may.
            LimitError: This engine has too many topologies.
            CallerError: No hit was passed, or the daemon can not tell when this process ends.
        """
        return Topology.register(self._link, hits, groups)

    def topologies(self) -> list[Topology]:
        """Return what this engine has registered and not dropped, by earlier connections too; without handles."""
        return Topology.found(self._link)

    def _at(
        self,
        layout: RegisteredLayout,
        tokens: Sequence[int],
        boundary: int | None,
        extra: ExtraKeys | None,
        make: Callable[[int, Boundary], Request],
        expect: type[R],
    ) -> R:
        require_registered(layout)

        def build(session: Session) -> Request:
            return make(session.number(layout), self._boundary(session, layout, tokens, boundary, extra))

        _, answer = self._link.call(build, expect, self._deadline())
        return answer

    def _boundary(
        self,
        session: Session,
        layout: RegisteredLayout,
        tokens: Sequence[int],
        position: int | None,
        extra: ExtraKeys | None,
    ) -> Boundary:
        prompt = Prompt(tokens, layout.layout.block_tokens, session.welcome.root_key, extra)
        return prompt.boundary(prompt.tokens if position is None else position)

    def _deadline(self) -> Deadline:
        return Deadline(self._link.timeout)
