"""Everything that can happen next, as labels: what engines ask, what jobs answer, who dies, what a restart finds.

A label is all that a trace consists of; `command` makes the command of it that fits the numbers of a state.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from kvledger.epochs import EpochState
from kvledger.kinds import Kind
from kvledger.wire.requests import (
    Abort,
    Acquire,
    Commit,
    Evict,
    Offload,
    Put,
    PutRange,
    Release,
    Request,
    Reserve,
    Restore,
    SetEpoch,
    Settle,
)
from kvledgerd.core.commands import (
    Ask,
    Caller,
    Command,
    DegradeDue,
    EngineGone,
    EngineJoined,
    EngineSilent,
    MemoryDue,
    Probed,
    ProbeDue,
    SaveDue,
    Start,
)
from kvledgerd.core.config import DiskWritePolicy
from kvledgerd.core.copies.decide_write import unsaved
from kvledgerd.core.holdings import Engine, Unit
from kvledgerd.core.state import State
from model.scope import Scope
from model.sides import ENGINE_KEYS, TENANT, Sides

__all__ = ["ANSWERS", "asked", "engine_of", "labels", "shell_command"]

ANSWERS = {
    "arena": ("ok", "failed"),
    "copy": ("ok", "failed"),
    "verify": ("right", "wrong"),
    "write": ("ok", "failed"),
    "read": ("ok", "damaged", "failed"),
    "move": ("ok", "failed"),
}
KINDS = {"C": Kind.COMPRESSED_KV, "X": Kind.INDEXER_STATE, "S": Kind.SWA_WINDOW, "M": Kind.UNCOMPRESSED_TAIL}
RECEIPTS = frozenset({"release", "settle", "put", "commit", "abort"})
"""Requests that name a receipt."""
EVICTIONS = tuple(f"evict {name} memory 0" for name in KINDS)
DISK_EVICTIONS = ("evict C disk 0", "evict M disk 0", "forget 0")
OFFLOADS = ("offload keep 0", "offload drop 0", "offload drop 1")
RESTORES = ("restore 0", "restore 1", "await 0")
DUE: dict[str, Command] = {
    "memory due": MemoryDue(),
    "disk degrades": DegradeDue("made up"),
    "disk probe due": ProbeDue(),
    "disk answers": Probed(""),
    "disk is silent": Probed("failed: made up"),
}
"""What a daemon does that works by itself, beside writing what would be lost."""
SAVE = "disk saves"


def labels(state: State, sides: Sides) -> Iterator[str]:
    """Yield everything that can happen in a state."""
    for job, (what, _) in sides.pending.items():
        yield from (f"job {job} {what} {how}" for how in ANSWERS[what])
    present = {ENGINE_KEYS.index(e.key): e for e in state.engines.values()}
    for number in (0, 1):
        engine = present.get(number)
        if engine is None:
            yield f"{'AB'[number]} joins"
            continue
        name = "AB"[number]
        yield f"{name} gone"
        yield f"{name} {'heard' if engine.silent else 'silent'}"
        if number in sides.parked:
            yield f"{name} expires"
        else:
            yield from (f"{name} {label}" for label in _requests(state, engine))
            if number == min(present):
                yield from (f"{name} {label}" for label in _operations(state))
    yield from ("restart all", "restart none", "restart first") if state.arenas else ("restart all",)
    if state.config.disk_write is not DiskWritePolicy.ASKED:
        yield from (*DUE, SAVE)


def _requests(state: State, engine: Engine) -> Iterator[str]:
    if engine.leases:
        lease = state.leases[next(iter(engine.leases))]
        yield "release"
        yield from (f"settle {i}" for i in range(len(lease.offers)))
    else:
        yield from ("acquire 0", "acquire 1")
    if engine.units:
        unit = state.units[next(iter(engine.units))]
        yield from ("commit", "abort")
        if not any(unit.filled):
            yield "put"
    else:
        yield from ("reserve 0", "reserve 1")
        if engine.key == ENGINE_KEYS[0]:
            yield "reserve shared"


def _operations(state: State) -> Iterator[str]:
    """Yield what an operator may ask; what is refused for want of any copy that it could be about is left out."""
    cells = state.cells.values()
    if state.epochs[1].state is EpochState.RETIRED:
        yield "epoch active 0"
    elif cells or state.units:
        yield "epoch retired 0"
    if any(c.memory and not c.pins for c in cells):
        yield from EVICTIONS
    if any(c.disk for c in cells):
        yield from DISK_EVICTIONS
    if any(c.memory for c in cells):
        yield from OFFLOADS
    if any(c.disk & ~c.memory for c in cells):
        yield from RESTORES


def engine_of(label: str) -> int:
    """Return the number of the engine that a label begins with, -1 if it is the shell's."""
    return {"A": 0, "B": 1}.get(label[0], -1) if label[1:2] == " " else -1


def asked(scope: Scope, state: State, number: int, label: str, unit: int = 0) -> Ask:
    """Return the request of a label without its engine's name; a parked one names the unit that it named before."""
    engine = next(e for e in state.engines.values() if e.key == ENGINE_KEYS[number])
    word, _, rest = label.partition(" ")
    if word not in RECEIPTS:
        return _fixed(scope, engine.number, label)
    unit, lease = unit or next(iter(engine.units), 0), next(iter(engine.leases), 0)
    match word:
        case "release":
            request: Request = Release(lease)
        case "settle":
            request = Settle(lease, int(rest))
        case "put":
            request = Put(unit, _ranges(scope, state.units[unit]) if unit in state.units else [])
        case _:
            request = Commit(unit) if word == "commit" else Abort(unit)
    return Ask(Caller(engine.number, engine.number, TENANT), request)


@lru_cache
def _fixed(scope: Scope, engine: int, label: str) -> Ask:
    """Return a request that names no receipt."""
    return Ask(Caller(engine, engine, TENANT), _operation(scope, label.split()))


def _operation(scope: Scope, words: list[str]) -> Request:
    number = int(words[-1]) if words[-1] != "shared" else 0
    at = scope.prompts[number]
    request: Request
    match words:
        case ["acquire", _]:
            request = Acquire(1, scope.lengths[number] + 1, at.hashes)
        case ["reserve", "shared"]:
            request = Reserve(1, scope.shared, boundary=False)
        case ["reserve", _]:
            request = Reserve(1, at, boundary=True)
        case ["evict", name, where, _]:
            request = Evict(KINDS[name], 1, at, disk=where == "disk")
        case ["epoch", what, _]:
            request = SetEpoch(scope.layout.model, scope.layout.weights_digest, EpochState(what))
        case ["forget", _]:
            request = Evict(Kind.DISK_PREFIX, 1, at)
        case ["offload", how, _]:
            request = Offload(1, at, drop_memory=how == "drop")
        case _:
            request = Restore(1, at, wait_ms=1000 if words[0] == "await" else 0)
    return request


def _ranges(scope: Scope, unit: Unit) -> list[PutRange]:
    objects = [(i, unit.objects[i]) for i in unit.missing()]
    return [PutRange(scope.layout.groups[o.group].kind, i, 0, 0, o.length) for i, o in objects]


def shell_command(state: State, label: str) -> Command:
    """Return the command of a label that no engine sends."""
    if label in DUE:
        return DUE[label]
    if label == SAVE:
        return SaveDue(tuple(unsaved(state)))
    words = label.split()
    if words[0] == "restart":
        ready = sorted((a.kind, a.id) for a in state.arenas.values() if a.ready)
        found = {"all": ready, "none": [], "first": ready[:1]}[words[1]]
        return Start(state.incarnation + 1, b"b" * 16, b"l" * 16, tuple(number for _, number in found))
    key = ENGINE_KEYS["AB".index(words[0])]
    if words[1] == "joins":
        return EngineJoined(key, TENANT, 1000, 1, words[0])
    number = next(e.number for e in state.engines.values() if e.key == key)
    if words[1] == "gone":
        return EngineGone(number, "gone")
    return EngineSilent(number, words[1] == "silent")
