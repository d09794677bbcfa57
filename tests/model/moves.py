"""Everything that can happen next, as labels: what engines ask, what jobs answer, who dies, what a restart finds.

A label is all that a trace consists of; `command` makes the command of it that fits the numbers of a state.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    Settle,
)
from kvledgerd.core.commands import Ask, Caller, EngineGone, EngineJoined, EngineSilent, Start
from kvledgerd.core.holdings import Engine, Unit
from kvledgerd.core.state import State
from model.scope import Scope
from model.snapshot import ENGINE_KEYS, TENANT, Sides

__all__ = ["ANSWERS", "asked", "engine_of", "labels", "shell_command"]

ANSWERS = {
    "arena": ("ok", "failed"),
    "copy": ("ok", "failed"),
    "verify": ("right", "wrong"),
    "write": ("ok", "failed"),
    "read": ("ok", "damaged", "failed"),
}
KINDS = {"C": Kind.COMPRESSED_KV, "X": Kind.INDEXER_STATE, "S": Kind.SWA_WINDOW, "M": Kind.UNCOMPRESSED_TAIL}
OPERATIONS = (
    *(f"evict {name} memory 0" for name in KINDS),
    "evict C disk 0",
    "evict M disk 0",
    "forget 0",
    "offload keep 0",
    "offload drop 0",
    "offload drop 1",
    "restore 0",
    "restore 1",
    "await 0",
)


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
            if sides.parked[number][0].startswith("await"):
                yield f"{name} expires"
        else:
            yield from (f"{name} {label}" for label in _requests(state, engine))
            if number == min(present):
                yield from (f"{name} {label}" for label in OPERATIONS)
    yield from ("restart all", "restart none", "restart first") if state.arenas else ("restart all",)


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
        if engine.number == 1:
            yield "reserve shared"


def engine_of(label: str) -> int:
    """Return the number of the engine that a label begins with, -1 if it is the shell's."""
    return {"A": 0, "B": 1}.get(label[0], -1) if label[1:2] == " " else -1


def asked(scope: Scope, state: State, number: int, label: str, unit: int = 0) -> Ask:
    """Return the request of a label without its engine's name; a parked one names the unit that it named before."""
    engine = next(e for e in state.engines.values() if e.key == ENGINE_KEYS[number])
    unit = unit or next(iter(engine.units), 0)
    return Ask(Caller(engine.number, engine.number, TENANT), _body(scope, state, engine, unit, label.split()))


def _body(scope: Scope, state: State, engine: Engine, unit: int, words: list[str]) -> Request:
    lease = next(iter(engine.leases), 0)
    match words:
        case ["acquire", prompt]:
            request: Request = Acquire(1, scope.lengths[int(prompt)] + 1, scope.prompts[int(prompt)].hashes)
        case ["release"]:
            request = Release(lease)
        case ["settle", offer]:
            request = Settle(lease, int(offer))
        case ["reserve", prompt]:
            shared = prompt == "shared"
            request = Reserve(1, scope.shared if shared else scope.prompts[int(prompt)], boundary=not shared)
        case ["put"]:
            request = Put(unit, _ranges(scope, state.units[unit]) if unit in state.units else [])
        case ["commit" | "abort" as word]:
            request = Commit(unit) if word == "commit" else Abort(unit)
        case _:
            request = _operation(scope, words)
    return request


def _operation(scope: Scope, words: list[str]) -> Request:
    at = scope.prompts[int(words[-1])]
    match words:
        case ["evict", name, where, _]:
            return Evict(KINDS[name], 1, at, disk=where == "disk")
        case ["forget", _]:
            return Evict(Kind.DISK_PREFIX, 1, at)
        case ["offload", how, _]:
            return Offload(1, at, drop_memory=how == "drop")
        case ["restore" | "await" as word, _]:
            return Restore(1, at, wait_ms=1000 if word == "await" else 0)
    raise AssertionError(words)


def _ranges(scope: Scope, unit: Unit) -> list[PutRange]:
    objects = [(i, unit.objects[i]) for i in unit.missing()]
    return [PutRange(scope.layout.groups[o.group].kind, i, 0, 0, o.length) for i, o in objects]


def shell_command(state: State, label: str) -> EngineGone | EngineJoined | EngineSilent | Start:
    """Return the command of a label that no engine sends."""
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
