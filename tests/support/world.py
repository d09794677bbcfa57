"""A world without sockets, files or threads around the real core: bytes are Python bytes, effects run when told to.

Every event is encoded, decoded and applied, as a replay would; `World.replayed` makes the state anew from them.
"""

from collections.abc import Sequence

import xxhash
from msgspec.structs import replace

from kvledger.hashing import ChainHasher, token_bytes
from kvledger.kinds import Form, Kind
from kvledger.layout import GroupSpec, KernelABI, Layout
from kvledger.wire.replies import Acquired, Committed, Failed, Reply, Reserved, Warming
from kvledger.wire.requests import (
    Acquire,
    Boundary,
    Commit,
    Evict,
    Offload,
    Put,
    PutRange,
    Register,
    RegisterTopology,
    Reserve,
    Restore,
    Status,
    TopologyPart,
)
from kvledger_storage import events
from kvledger_storage.blob_ref import BlobRef
from kvledgerd.core.apply import apply
from kvledgerd.core.commands import (
    Adopted,
    ArenaMade,
    Ask,
    Caller,
    Command,
    ConnectionEnded,
    Copied,
    EngineGone,
    EngineJoined,
    Moved,
    RestoreDone,
    Start,
    Verified,
    WarmDue,
    Written,
)
from kvledgerd.core.config import PAGE, CoreConfig
from kvledgerd.core.decide import decide
from kvledgerd.core.decision import (
    ClearArena,
    CopyIn,
    Decision,
    DiskRead,
    DiskWrite,
    DropBlobs,
    Later,
    MakeArena,
    MoveSlots,
    Park,
    SetGenerations,
    VerifySlots,
    WarmUp,
)
from kvledgerd.core.index import BLOB, SEGMENT, Cell
from kvledgerd.core.invariants import violations
from kvledgerd.core.state import State
from kvledgerd.tensors.payloads import dequantise_into, quantised

ROOT_KEY = bytes(range(32))


def group(name: str, kind: Kind, form: Form = Form.ROWS, **fields) -> GroupSpec:
    """A group with small defaults: one layer, rows of 16 bytes, pages that hold `rows_per_page` of them."""
    fields.setdefault("layers", (0,))
    fields.setdefault("row_bytes", 0 if form is Form.SNAPSHOT else 16)
    fields.setdefault("page_bytes", max(fields["row_bytes"] * fields.get("rows_per_page", 1), 64))
    return GroupSpec(name=name, kind=kind, form=form, **fields)


def layout(*groups: GroupSpec, block_tokens: int = 256, **fields) -> Layout:
    """A layout of these groups with one ABI each."""
    fields.setdefault("model", "test")
    fields.setdefault("weights_digest", "w1")
    fields.setdefault("abi", {g.name: KernelABI(name="plain") for g in groups})
    return Layout(groups=groups, block_tokens=block_tokens, **fields)


class World:
    """The core with a memory and a disk of Python bytes."""

    def __init__(self, config: CoreConfig | None = None, *, check: bool = True) -> None:
        self.config = config or CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, disk_bytes=64 << 20)
        self.state = State(self.config)
        self.check = check
        self.log: list[bytes] = []
        self.memory: dict[tuple[int, int], bytes] = {}
        self.generations: dict[tuple[int, int], int] = {}
        self.disk: dict[tuple[int, int], bytes] = {}
        self.next_blob = 0
        self.connections = 1000
        self.rings: dict[tuple[int, int], bytes] = {}
        self.restore_micros = 0  # what the disk says that each restore takes
        self.held: list | None = None  # effects kept back while a test wants them late
        self.layout_numbers: dict[bytes, int] = {}
        self.do(Start(1, b"b" * 16, b"l" * 16, ()))

    # --- carrying out -------------------------------------------------------------------------------------------

    def do(self, command: Command) -> Reply | Decision:
        """Decide, apply and carry out; follow parked commands until they are answered or wait for held effects."""
        for _ in range(50):
            decision = decide(self.state, command)
            self.record(decision.events)
            self.note(decision)
            for _, effect in decision.effects:
                if self.held is None:
                    self.run(effect)
                else:
                    self.held.append(effect)
            if decision.park is None:
                return decision.reply if decision.reply is not None else decision
            if self.held or self.waits(decision.park):
                return decision
            command = replace(command, parked=decision.park.jobs)
        raise AssertionError(f"{command} is never answered")

    def waits(self, park: Park) -> bool:
        """Tell whether what a command is parked for goes on for longer; for those whose disk is slow."""
        del park
        return False

    def note(self, decision: Decision) -> None:
        """Look at a decision that was applied and is not carried out yet; for those who tell about it."""

    def record(self, new: Sequence[events.Event]) -> None:
        """Log and apply events."""
        for event in new:
            raw = events.encode(event, 0, "test")
            self.log.append(raw)
            apply(self.state, events.decode(raw).event)
        if self.check:
            assert violations(self.state) == [], new

    def drop(self, cell: Cell, slot: int) -> None:
        """Let one copy in memory go, as an eviction does."""
        self.record([events.ObjectsEvicted(((cell.id, slot),), memory=True, disk=False, reason="test")])

    def replayed(self) -> State:
        """Return the state that a replay of the log makes."""
        state = State(self.config)
        for raw in self.log:
            apply(state, events.decode(raw).event)
        return state

    def records(self) -> set[tuple[int, int]]:
        """Return every record on disk that the state knows: (segment, offset)."""
        found = {cell.manifest[:2] for cell in self.state.cells.values() if cell.manifest}
        for cell in self.state.cells.values():
            slots = [slot for slot in range(len(cell.states)) if cell.disk >> slot & 1]
            found |= {(cell.word(slot, SEGMENT), cell.word(slot, BLOB)) for slot in slots}
        return found

    def events(self, tag: str) -> list[events.Event]:
        """Return the events of one tag in the order of the log."""
        found = [events.decode(raw).event for raw in self.log]
        return [event for event in found if event.__struct_config__.tag == tag]

    def reasons(self, tag: str) -> list[str]:
        """Return why events of one tag happened, in the order of the log."""
        return [event.reason for event in self.events(tag)]

    def evicted(self) -> list[tuple[str, str]]:
        """Return (group, reason) of every object that an eviction named, as it was named."""
        state, found = State(self.config), []
        for raw in self.log:
            event = events.decode(raw).event
            if isinstance(event, events.ObjectsEvicted):
                for number, slot in event.objects:
                    known = state.layouts[state.cells[number].layout]
                    found.append((known.layout.groups[known.slot_groups[slot]].name, event.reason))
            apply(state, event)
        return found

    def release_effects(self) -> None:
        """Carry out what was held back."""
        held, self.held = self.held or [], None
        for effect in held:
            self.run(effect)

    def run(self, effect) -> None:
        """Carry out one effect and answer it."""
        match effect:
            case SetGenerations():
                self.generations.update(dict(_pages(effect)))
            case MakeArena():
                self.do(ArenaMade(effect.job, effect.arena))
            case ClearArena():
                self._clear(effect)
            case CopyIn():
                self.do(Copied(effect.job, tuple(self._copy(effect))))
            case MoveSlots():
                self.do(Moved(effect.job, tuple(self._move(effect))))
            case VerifySlots():
                self.do(Verified(effect.job, tuple(_xxh(self.memory.get((a, o), b"")) for a, o, _ in effect.slots)))
            case DiskWrite():
                self.do(self.written(effect))
            case DiskRead():
                errors = tuple(self._read(r) for r in effect.records)
                made = ((i, r) for i, r in enumerate(effect.records) if r.quantised and not errors[i])
                prints = tuple((i, _xxh(self.memory[r.arena, r.offset])) for i, r in made)
                self.do(RestoreDone(effect.job, errors, self.restore_micros, prints))
            case DropBlobs() | Later() | WarmUp():
                self._behind(effect)
            case _:
                raise AssertionError(effect)

    def _behind(self, effect: DropBlobs | Later | WarmUp) -> None:
        """Do what nobody waits for."""
        if isinstance(effect, Later):
            self.do(effect.command)
            return
        if isinstance(effect, WarmUp):
            self.warm(effect)
            return
        dropped = {(ref.segment, ref.offset) for ref in effect.refs}
        self.disk = {at: data for at, data in self.disk.items() if at not in dropped}

    def warm(self, run: WarmUp) -> list[Warming]:
        """Run a warm-up to its end; return what each step said."""
        said: list[Warming] = []
        left, seen = run.bytes, 0
        while not said or said[-1].job or seen < said[-1].total:
            said.append(self.do(WarmDue(run.tenant, run.layout, run.block, seen, left)))
            seen, left = said[-1].seen, left - said[-1].bytes
        return said

    def _copy(self, effect: CopyIn):
        for item in effect.ranges:
            data = self.rings[effect.connection, item.ring_offset][: item.length]
            before = self.memory.get((item.arena, item.slot_offset), b"") if item.offset else b""
            self.memory[item.arena, item.slot_offset] = before + data
            if item.last:
                yield item.index, _xxh(before + data)

    def _clear(self, effect: ClearArena) -> None:
        pages = self.state.arenas[effect.arena].bytes // PAGE
        self.generations.update({(effect.arena, PAGE * page): effect.job for page in range(pages)})
        self.memory = {place: data for place, data in self.memory.items() if place[0] != effect.arena}
        self.do(ArenaMade(effect.job, effect.arena))

    def _move(self, effect: MoveSlots):
        for source, start, arena, offset, _ in effect.copies:
            data = self.memory[arena, offset] = bytes(self.memory.get((source, start), b""))
            yield _xxh(data)

    def written(self, effect: DiskWrite) -> Written:
        """Write records and a manifest, and return where they lie."""
        payloads = [_payload(r, self.memory[r.arena, r.offset]) for r in effect.records]
        prints = ((i, _xxh(payloads[i])) for i, r in enumerate(effect.records) if r.quantised)
        stored = map(self._write, (*payloads, effect.manifest))
        return Written(effect.job, tuple(stored), prints=tuple(prints))

    def _write(self, data: bytes) -> BlobRef:
        self.next_blob += PAGE
        self.disk[1, self.next_blob] = data
        return BlobRef(1, self.next_blob, len(data))

    def _read(self, record) -> str:
        data = self.disk.get((record.ref.segment, record.ref.offset))
        if data is None:
            return "damaged: the record is gone"
        if _xxh(data) != record.fingerprint:
            return "damaged: another fingerprint"
        self.memory[record.arena, record.offset] = _object(record, data)
        return ""

    # --- what users do ------------------------------------------------------------------------------------------

    def engine(self, name: str = "engine", tenant: str = "default", uid: int = 1000) -> "User":
        """A new engine with one connection."""
        self.do(EngineJoined(name.encode().ljust(16, b"\0")[:16], tenant, uid, 1, name))
        number = max(self.state.engines)
        return User(self, Caller(number, number, tenant, operator=True))

    def restart(self, *, arenas: bool = True, boot: bytes = b"b" * 16, lost: int = 0) -> None:
        """Kill the daemon and start the next incarnation from the log."""
        self.state = self.replayed()
        self.disk = {at: data for at, data in self.disk.items() if at in self.records()}  # as the disk's start does
        found = tuple(a.id for a in self.state.arenas.values() if a.ready and a.id != lost) if arenas else ()
        self.held = None
        self.do(Start(self.state.incarnation + 1, boot, b"l" * 16, found))
        self.do(Adopted())


class User:
    """One engine's view of the world."""

    def __init__(self, world: World, caller: Caller) -> None:
        self.world = world
        self.caller = caller
        self.processes = ((1000 + caller.engine, 7),)

    def ask(self, body) -> Reply:
        """Send a request."""
        return self.world.do(Ask(self.caller, body, processes=self.processes))

    def ok(self, body):
        """Send a request that has to succeed."""
        reply = self.ask(body)
        assert not isinstance(reply, Failed), reply
        return reply

    def register(self, what: Layout) -> int:
        """Register a layout and return its number."""
        return self.ok(Register(what)).layout

    def boundary(self, number: int, tokens: Sequence[int], end: int | None = None) -> Boundary:
        """The boundary at `end` tokens of a prompt."""
        size = self.world.state.layouts[number].layout.block_tokens
        tokens = tokens[: len(tokens) if end is None else end]
        hasher, packed = ChainHasher(ROOT_KEY, size), token_bytes(tokens)
        hashes = hasher.blocks(packed)
        residue = len(tokens) % size
        parent = hashes[-32:] if hashes else hasher.root()
        rest = packed[4 * (len(tokens) - residue) :]
        return Boundary(hashes, residue, hasher.residue(parent, rest) if residue else b"")

    def acquire(self, number: int, tokens: Sequence[int], **fields) -> Acquired:
        """Look a prompt up."""
        hashes = self.boundary(number, tokens).hashes
        return self.ok(Acquire(number, len(tokens), hashes, **fields))

    def reserve(self, number: int, tokens: Sequence[int], end: int | None = None, **fields) -> Reserved:
        """Reserve a unit."""
        return self.ok(Reserve(number, self.boundary(number, tokens, end), **fields))

    def ask_reserve(self, number: int, tokens: Sequence[int], end: int | None = None, **fields) -> Reply:
        """Reserve a unit, or be refused."""
        return self.ask(Reserve(number, self.boundary(number, tokens, end), **fields))

    def beside(self) -> "User":
        """Another connection of the same engine, such as a rank's."""
        self.world.connections += 1
        return User(self.world, replace(self.caller, connection=self.world.connections))

    def hang_up(self, reason: str = "connection closed") -> None:
        """End this connection while the engine lives on."""
        self.world.do(ConnectionEnded(self.caller.engine, self.caller.connection, reason))

    def fill(self, reserved: Reserved, skip=(), seed: int = 0, rank: int | None = None) -> None:
        """Put recognisable bytes into all that a unit, or one rank of it, brings, but for the groups in `skip`."""
        unit = self.world.state.units[reserved.unit]
        known = self.world.state.layouts[unit.layout]
        ranges = []
        for index in unit.missing():
            item = unit.objects[index]
            spec = known.layout.groups[item.group]
            if spec.name in skip or rank not in {None, spec.rank_of(item.shard)}:
                continue
            data = content(spec.name, item, seed)
            at = len(self.world.rings)  # each range has a place of its own: a ring is reused after the reply only
            self.world.rings[self.caller.connection, at] = data
            ranges.append(PutRange(spec.kind, index, 0, at, item.length))
        if ranges:
            self.ok(Put(reserved.unit, ranges))

    def commit(self, reserved: Reserved) -> Reply:
        """Commit a unit, or be refused."""
        return self.ask(Commit(reserved.unit))

    def store(self, number: int, tokens: Sequence[int], end: int | None = None, **fields) -> Committed:
        """Reserve, fill and commit."""
        seed = fields.pop("seed", 0)
        reserved = self.reserve(number, tokens, end, **fields)
        self.fill(reserved, seed=seed)
        return self.ok(Commit(reserved.unit))

    def counters(self) -> dict[str, int]:
        """The counters of a status."""
        return self.ok(Status()).counters

    def evict(self, number: int, tokens: Sequence[int], end: int | None, name: str, **fields):
        """Drop copies of one group."""
        kind = self.world.state.layouts[number].layout.group(name).kind
        return self.ok(Evict(kind, number, self.boundary(number, tokens, end), name, **fields))

    def offload(self, number: int, tokens: Sequence[int], end: int | None = None, *, drop: bool = True):
        """Write a boundary to disk."""
        return self.ok(Offload(number, self.boundary(number, tokens, end), drop))

    def restore(self, number: int, tokens: Sequence[int], end: int | None = None) -> Reply:
        """Bring a boundary back."""
        return self.ask(Restore(number, self.boundary(number, tokens, end)))

    def leave(self, reason: str = "died") -> None:
        """End the engine."""
        self.world.do(EngineGone(self.caller.engine, reason))

    def capture(self, *acquired: Acquired, offer: int = 0) -> int:
        """Register a topology over what leases handed out and return its number."""
        parts = [TopologyPart(one.lease, offer, []) for one in acquired]
        return self.ok(RegisterTopology(parts)).topology.topology

    def read(self, acquired: Acquired, offer: int = 0) -> dict[tuple[int, int, int], bytes]:
        """Return the bytes behind a lease's offer: (group, shard, first token) to bytes; checks generations."""
        chosen = acquired.offers[offer]
        limit = chosen.position - chosen.residue
        found = {}
        for run in (*acquired.rows, *chosen.runs):
            for i in range(run.count):
                first = run.first_token + i * run.step
                if run in acquired.rows and first >= limit:
                    continue
                place = (run.arena, run.offset + i * run.stride)
                assert self.world.generations[place] == run.generation
                found[run.group, run.shard, first] = data = self.world.memory[place]
                assert run.prints[8 * i : 8 * i + 8] in {b"", mark64(data)}
                assert bool(run.prints) == (run.arena in self.world.state.device_pools)
        return found


def _pages(effect: SetGenerations):
    for arena, offset, length, generation in effect.slots:
        yield from (((arena, page), generation) for page in range(offset, offset + length, PAGE))


def content(name: str, item, seed: int = 0) -> bytes:
    """Bytes by which an object is recognised: its group, shard, position and length decide them."""
    mark = f"{name}/{item.shard}/{item.first_token}/{seed};".encode()
    return (mark * (item.length // len(mark) + 1))[: item.length]


def mark64(data: bytes) -> bytes:
    """Stand for the `fp64` that an engine's kernel makes of an object."""
    return xxhash.xxh3_64_digest(data)


def _payload(record, data: bytes) -> bytes:
    """Return what a record holds of an object."""
    return data if record.quantised is None else bytes(quantised(memoryview(data), record.quantised))


def _object(record, data: bytes) -> bytes:
    """Return the object that a record brings back."""
    if record.quantised is None:
        return data
    slot = bytearray(record.length)
    dequantise_into(memoryview(data), memoryview(slot), record.quantised)
    return bytes(slot)


def _xxh(data: bytes) -> bytes:
    return xxhash.xxh3_128_digest(data)
