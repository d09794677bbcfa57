"""One step: a label is decided on a state, and carried out on a copy of it."""

from __future__ import annotations

from collections.abc import Iterable

from kvledger.wire.replies import Acquired, Committed
from kvledger.wire.requests import Boundary, Commit, Register, Settle
from kvledgerd.core.apply import apply
from kvledgerd.core.commands import (
    ArenaFailed,
    ArenaMade,
    Ask,
    Caller,
    Command,
    Copied,
    EngineJoined,
    Moved,
    RestoreDone,
    Start,
    Verified,
    Written,
)
from kvledgerd.core.decide import decide
from kvledgerd.core.decision import Decision
from kvledgerd.core.holdings import RestoreJob
from kvledgerd.core.state import State
from model.moves import asked, engine_of, shell_command
from model.scope import Scope
from model.sides import ENGINE_KEYS, TENANT, Sides
from model.surroundings import GARBAGE, MANIFEST, Broken, Surroundings, fingerprint

__all__ = ["Steps", "follow", "fresh"]

Data = tuple[tuple[int, ...], ...]
"""What a job is about, as `model.sides` keeps it."""


class Steps:
    """Steps of one scope, and how often each event was seen."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.decided = 0
        self.covered: dict[str, int] = {}

    def step(self, around: Surroundings, label: str) -> bool:
        """Change a state and its surroundings as a label says; tell whether anything changed.

        Raises:
            Broken: something happened that must never happen.
            Exception: whatever the core raises.
        """
        self.decided += 1
        engine = engine_of(label)
        word = label.split()[1 if engine >= 0 else 0]
        if word == "job":
            self._answer(around, label)
        elif engine < 0 or word in {"joins", "gone", "silent", "heard"}:
            if not self._happen(around, label):
                return False
        elif word == "expires":
            around.expired(engine)
        elif not self._ask(around, engine, label[2:]):
            return False
        around.check_losses()
        around.tidy()
        return True

    def _ask(self, around: Surroundings, number: int, label: str) -> bool:
        state = around.state
        command = asked(self.scope, state, number, label)
        decision = decide(state, command)
        if isinstance(decision.reply, Acquired):
            check_verdict(self.scope, state, label, decision.reply)
            if not decision.reply.lease:
                return False
        if not decision.events and decision.park is None:
            return False
        self._cover(decision)
        if isinstance(command.body, Settle):
            self._settle(around, command, decision, number, label)
        elif isinstance(command.body, Commit) and isinstance(decision.reply, Committed):
            unit = state.units[command.body.unit]
            around.carry(command, decision, number, label)
            around.check_published(unit)
        else:
            around.carry(command, decision, number, label)
        return True

    def _settle(self, around: Surroundings, command: Ask, decision: Decision, number: int, label: str) -> None:
        state, body = around.state, command.body
        assert isinstance(body, Settle)
        node = state.nodes.get(state.leases[body.lease].offers[body.offer].node)
        end = node.depth * self.scope.layout.block_tokens if node is not None else 0
        around.carry(command, decision, number, label)
        around.settled(body.lease, body.offer, end)

    def _happen(self, around: Surroundings, label: str) -> bool:
        command = shell_command(around.state, label)
        decision = decide(around.state, command)
        if not decision.events:
            return False
        self._cover(decision)
        around.carry(command, decision)
        if label.startswith("restart"):
            around.restarted()
        elif label.endswith("gone"):
            around.sides.parked.pop(engine_of(label), None)
        return True

    def _answer(self, around: Surroundings, label: str) -> None:
        _, job, what, how = label.split()
        _, data = around.sides.pending.pop(int(job))
        command = _ANSWERS[what](around, int(job), data, how)
        decision = decide(around.state, command)
        self._cover(decision)
        around.carry(command, decision)
        around.answered(int(job))

    def _cover(self, decision: Decision) -> None:
        for event in decision.events:
            name = type(event).__name__
            self.covered[name] = self.covered.get(name, 0) + 1


def follow(steps: Steps, trace: Iterable[str]) -> Surroundings:
    """Return what a trace leads to from an empty cache; ``job copy ok`` without a number answers the oldest copy."""
    around = fresh(steps.scope)
    for text in trace:
        _, _, answer = text.partition("job ")
        job = next((j for j, (what, _) in around.sides.pending.items() if answer.startswith(what)), 0)
        label = f"job {job} {answer}" if answer else text
        around.begin()
        assert steps.step(around, label), label
    return around


def fresh(scope: Scope) -> Surroundings:
    """Return an empty cache that knows both engines, the layout, and one arena for each kind."""
    state, sides = State(scope.config), Sides()
    around = Surroundings(scope, state, sides)
    commands: list[Command] = [Start(1, b"b" * 16, b"l" * 16, ())]
    commands += [EngineJoined(key, TENANT, 1000, 1, name) for key, name in zip(ENGINE_KEYS, "AB", strict=True)]
    commands.append(Ask(Caller(1, 1, TENANT), Register(scope.layout)))
    for command in commands:
        around.carry(command, decide(state, command))
    command = asked(scope, state, 0, "reserve 0")
    around.carry(command, decide(state, command), 0, "reserve 0")
    while 0 in sides.parked:
        job, (_, data) = sides.pending.popitem()
        for event in decide(state, ArenaMade(job, data[0][0])).events:
            apply(state, event)
        around.answered(job)
    command = asked(scope, state, 0, "abort")
    around.carry(command, decide(state, command))
    around.tidy()
    return around


def check_verdict(scope: Scope, state: State, label: str, reply: Acquired) -> None:
    """Check that no boundary is passed over at which everything is there, in memory or on a disk that does not fail.

    The other direction, that an offer has all it needs, is checked on its handles (`Surroundings`).
    """
    prompt, size = scope.prompts[int(label[-1])], scope.layout.block_tokens
    whole = len(prompt.hashes) // 32 * size
    best = max((offer.position for offer in reply.offers), default=0)
    for end in dict.fromkeys([*range(size, whole + 1, size), whole + prompt.residue]):
        if end > best and _complete(scope, state, prompt, end):
            raise Broken(f"everything for a resume at {end} is there, and the best offer is {best}")


def _complete(scope: Scope, state: State, prompt: Boundary, end: int) -> bool:
    """Tell whether everything for a resume is stored, rows and keys of one commit."""
    tree, size = state.trees[1], scope.layout.block_tokens
    path = [tree.nodes.get(prompt.hashes[i : i + 32]) for i in range(0, 32 * (end // size), 32)]
    at = path[-1] if path else tree.root
    chain = prompt.residue_hash if end % size else b""
    for item in scope.geometry.unit_objects(0, end, boundary=True):
        node = path[item.block] if item.block >= 0 else at
        cell = node and (node.cell(1) if item.block >= 0 else node.boundary(1, end % size, chain))
        if cell is None or cell.uncoupled:
            return False
        if not (cell.memory | (0 if state.degraded else cell.disk)) >> item.slot & 1:
            return False
    return True


def _arena(around: Surroundings, job: int, data: Data, how: str) -> Command:
    del around
    return ArenaMade(job, data[0][0]) if how == "ok" else ArenaFailed(job, data[0][0], "no memory")


def _copy(around: Surroundings, job: int, data: Data, how: str) -> Command:
    for arena, offset, content, _ in data:
        around.write((arena, offset), content if how == "ok" else GARBAGE)
    if how == "failed":
        return Copied(job, error="the ring ends early")
    return Copied(job, tuple((index, fingerprint(content)) for _, _, content, index in data))


def _verify(around: Surroundings, job: int, data: Data, how: str) -> Command:
    if how == "wrong":
        around.write((data[0][0], data[0][1]), GARBAGE)
    return Verified(job, tuple(fingerprint(around.sides.memory[a, o]) for a, o in data))


def _write(around: Surroundings, job: int, data: Data, how: str) -> Command:
    if how == "failed":
        return Written(job, error="no space")
    refs = []
    for arena, offset, content in data:
        if around.sides.memory[arena, offset] != content:
            raise Broken(f"what is written to disk from arena {arena} at {offset} is not what was committed")
        refs.append(around.store(content))
    return Written(job, (*refs, around.store(MANIFEST)))


def _read(around: Surroundings, job: int, data: Data, how: str) -> Command:
    errors, running = [], around.state.jobs.get(job)
    void = isinstance(running, RestoreJob) and running.void  # its records are given back, and what it reads is nobody's
    for index, (arena, offset, content, record) in enumerate(data):
        if around.sides.disk.get((1, record)) != content and not void:
            raise Broken(f"the record at {record} is read and holds something else")
        bad = how == "failed" or (how == "damaged" and index == 0)
        around.write((arena, offset), GARBAGE if bad else content)
        errors.append(f"{how}: made up" if bad else "")
    return RestoreDone(job, tuple(errors))


def _move(around: Surroundings, job: int, data: Data, how: str) -> Command:
    if how == "failed":
        return Moved(job, error="made up")
    pairs = [(source[:2], place[:2]) for source, place in zip(data[::2], data[1::2], strict=True)]
    contents = [around.sides.memory[arena, offset] for (arena, offset), _ in pairs]
    for (_, (arena, offset)), content in zip(pairs, contents, strict=True):
        around.write((arena, offset), content)
    return Moved(job, tuple(map(fingerprint, contents)))


_ANSWERS = {"arena": _arena, "copy": _copy, "verify": _verify, "write": _write, "read": _read, "move": _move}
