"""Exhaustive exploration of a small scope over the real `decide` and `apply`: every interleaving to a depth.

Breadth first, from several beginnings: an empty cache, a stored prompt, one that lies on disk only, two reservations
that share a stored block. States that are equal but for numbers meet (`model.snapshot`) and are looked at once. In each
state all invariants must hold, and so must what readers rely on (`model.surroundings`). What is found wrong is printed
with the shortest trace that leads there from its beginning.

Run by ``make explore``; the last line of its output is one JSON object.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from array import array
from collections.abc import Sequence

import msgspec
import xxhash

from kvledger.wire.replies import Failed
from kvledger.wire.requests import Commit, Release
from kvledgerd.core.commands import Ask, Caller
from kvledgerd.core.decide import decide
from kvledgerd.core.invariants import violations
from kvledgerd.core.state import State
from model.moves import labels
from model.scope import SCOPES, Scope
from model.snapshot import TENANT, build, flatten, packed
from model.steps import Steps, follow
from model.surroundings import Surroundings, check_sides

__all__ = ["Exploration", "Found", "main"]


STATES = 250_000
"""What about five minutes of one core are enough for: more than a million transitions."""


class Found(msgspec.Struct, frozen=True):
    """Something wrong: what, and the labels that lead to it."""

    what: str
    trace: tuple[str, ...]


class Exploration:
    """One scope being explored.

    Attributes:
        scope: The scope.
        steps: The steps that were made, and which events they brought.
        transitions: Steps that changed something, those to known states included.
        depth: Layers that were completed.
        found: What was wrong.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.steps = Steps(scope)
        self.transitions = self.depth = 0
        self.found: list[Found] = []
        self._seen: dict[int, None] = {}
        self._parents, self._labels = array("I"), array("H")
        self._names: dict[str, int] = {}
        self._layer: list[tuple[int, bytes]] = []
        self._next: list[tuple[int, bytes]] = []
        for name, trace in scope.beginnings.items():
            self._reach(follow(self.steps, trace), 0, name)
        self._layer, self._next = self._next, []

    @property
    def states(self) -> int:
        """Different states that were reached."""
        return len(self._seen)

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left to do."""
        return not self._layer or bool(self.found)

    def layer(self, *, limit: int) -> bool:
        """Explore one layer more; tell whether it was completed before `limit` states were reached."""
        for number, raw in self._layer:
            if self.states >= limit or self.found:
                return False
            self._expand(number, raw)
        self._layer, self._next = self._next, []
        self.depth += 1
        return True

    def _expand(self, number: int, raw: bytes) -> None:
        plain = msgspec.msgpack.decode(raw)
        state, sides = build(self.scope, plain)
        state.digest()
        digests = (state._digest, state._cell_digests)
        for label in labels(state, sides):
            try:
                after = self.steps.step(state, sides, plain, label, digests)
                if after is not None:
                    self.transitions += 1
                    self._reach(after, number, label)
            except Exception as error:  # noqa: BLE001  whatever is raised, the core raised it
                self._report(f"{type(error).__name__}: {error}", number, label)
                return
        self._strangers(state, number)

    def _strangers(self, state: State, number: int) -> None:
        """Check that receipts of others, and past ones, are refused."""
        for engine in state.engines.values():
            others = [e for e in state.engines.values() if e is not engine]
            asks: list[Commit | Release] = [Commit(unit) for other in others for unit in other.units]
            asks += [Release(lease) for other in others for lease in other.leases]
            for body in (*asks, Commit(999), Release(999)):
                decision = decide(state, Ask(Caller(engine.number, engine.number, TENANT), body))
                if decision.events or not isinstance(decision.reply, Failed):
                    self._report(f"{body} of somebody else is not refused", number)

    def _reach(self, around: Surroundings, parent: int, label: str) -> None:
        raw = packed(flatten(self.scope, around.state, around.sides))
        key = xxhash.xxh3_64_intdigest(raw)
        if key in self._seen:
            return
        self._seen[key] = None
        number = len(self._parents)
        self._parents.append(parent)
        self._labels.append(self._names.setdefault(label, len(self._names)))
        self._next.append((number, raw))
        wrong = violations(around.state) + check_sides(around.state, around.sides)
        if wrong:
            self._report("; ".join(wrong), number)

    def _report(self, what: str, number: int, label: str = "") -> None:
        names, trace = list(self._names), [label] if label else []
        while number >= len(self.scope.beginnings):
            trace.append(names[self._labels[number]])
            number = self._parents[number]
        trace.append(f"({names[self._labels[number]]})")
        self.found.append(Found(what, tuple(reversed(trace))))


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore and report; returns 1 if something is wrong."""
    parser = argparse.ArgumentParser(description="Explore every interleaving of a small scope.")
    parser.add_argument("--states", type=int, default=STATES, help=f"stop at so many in all (default {STATES})")
    parser.add_argument("--depth", type=int, default=99, help="stop after so many steps from each beginning")
    parser.add_argument("--scope", choices=tuple(SCOPES), action="append", help="only this scope")
    chosen = parser.parse_args(arguments)
    gc.set_threshold(100_000)  # states are graphs with cycles, thousands of them a second
    names = chosen.scope or list(SCOPES)
    began = time.perf_counter()
    runs = [_run(name, chosen.states // len(names), chosen.depth) for name in names]
    seconds = time.perf_counter() - began
    for run in runs:
        for found in run.found:
            _say(f"VIOLATED in scope {run.scope.name}: {found.what}")
            _say("\n".join(f"  {n}. {label}" for n, label in enumerate(found.trace)))
    last = {
        "states": sum(run.states for run in runs),
        "depth": min(run.depth for run in runs),
        "violations": sum(len(run.found) for run in runs),
        "states_per_second": round(sum(run.states for run in runs) / seconds),
        "transitions": sum(run.transitions for run in runs),
        "decisions": sum(run.steps.decided for run in runs),
        "cpu_seconds": round(time.process_time(), 1),
    }
    _say(json.dumps(last))
    return 1 if last["violations"] else 0


def _run(name: str, limit: int, depth: int) -> Exploration:
    run, began = Exploration(SCOPES[name]), time.perf_counter()
    while not run.exhausted and run.depth < depth and run.layer(limit=limit):
        rate = round(run.states / (time.perf_counter() - began))
        _say(f"scope {name}: depth {run.depth}, {run.states} states, {run.transitions} transitions, {rate} states/s")
    _say(f"scope {name}: {run.states} states, {run.transitions} transitions, {run.steps.decided} decisions; events:")
    _say("  " + ", ".join(f"{event} {count}" for event, count in sorted(run.steps.covered.items())))
    return run


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
