"""Exhaustive exploration of a small scope over the real `decide` and `apply`: every interleaving to a depth.

Breadth first, from several beginnings: an empty cache, a stored prompt, one that lies on disk only, two reservations
that share a stored block. States that are equal but for numbers meet (`model.values`) and are looked at once. In each
state all invariants must hold, and so must what readers rely on (`model.surroundings`). What is found wrong is printed
with the shortest trace that leads there from its beginning.

All steps from a state are taken on one and the same state and taken back (`model.base`), so a refused request that
changes anything is seen as well: the state would not be what it was.

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
from kvledger.wire.requests import Abort, Commit, Release
from kvledgerd.core.commands import Ask, Caller
from kvledgerd.core.decide import decide
from kvledgerd.core.invariants import violations
from kvledgerd.core.state import State
from model.base import Base
from model.building import build
from model.moves import labels
from model.scope import SCOPES, Scope
from model.sides import TENANT
from model.steps import Steps, follow
from model.surroundings import Surroundings, check_sides
from model.values import Seen, Values

__all__ = ["Exploration", "Found", "main"]


STATES = 1_000_000
GARBAGE_AFTER = 200_000
"""Objects made before the interpreter looks for garbage: a state is a graph with cycles, one for each state."""


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
        self._seen: set[int] = set()
        self._values = Values(scope)
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
        for number, value in self._layer:
            if self.states >= limit or self.found:
                return False
            self._expand(number, value)
        self._layer, self._next = self._next, []
        self.depth += 1
        return True

    def _expand(self, number: int, value: bytes) -> None:
        state, sides = build(self._values, value)
        state.digest()
        self._strangers(state, number)
        made, seen = self._values.of(state, sides)
        around, base = Surroundings(self.scope, state, sides), Base(state, sides)
        for label in [*labels(state, sides)]:
            try:
                if self.steps.step(around, label):
                    self.transitions += 1
                    if self._reach(around, number, label, seen.without(base.changed())):
                        base.changed()  # the digest of what is new was brought up to date
                    base.back()
                    around.may_go.clear()
            except Exception as error:  # noqa: BLE001  whatever is raised, the core raised it
                self._report(f"{type(error).__name__}: {error}", number, label)
                return
        if made != value or self._values.of(state, sides)[0] != value:
            self._report("a step changed what no other may see", number)

    def _strangers(self, state: State, number: int) -> None:
        """Check that receipts of others, and past ones, are refused."""
        for engine in state.engines.values():
            others = [e for e in state.engines.values() if e is not engine]
            units = [unit for other in others for unit in other.units]
            asks: list[Commit | Abort | Release] = [ask(unit) for unit in units for ask in (Commit, Abort)]
            asks += [Release(lease) for other in others for lease in other.leases]
            for body in (*asks, Commit(999), Release(999)):
                decision = decide(state, Ask(Caller(engine.number, engine.number, TENANT), body))
                if decision.events or not isinstance(decision.reply, Failed):
                    self._report(f"{body} of somebody else is not refused", number)

    def _reach(self, around: Surroundings, parent: int, label: str, since: Seen | None = None) -> bool:
        """Look at a state, and tell whether it is new."""
        value, _ = self._values.of(around.state, around.sides, since)
        key = xxhash.xxh3_64_intdigest(value)
        if key in self._seen:
            return False
        self._seen.add(key)
        number = len(self._parents)
        self._parents.append(parent)
        self._labels.append(self._names.setdefault(label, len(self._names)))
        self._next.append((number, value))
        wrong = violations(around.state) + check_sides(around.state, around.sides)
        if wrong:
            self._report("; ".join(wrong), number)
        return True

    def _report(self, what: str, number: int, label: str = "") -> None:
        names, trace = list(self._names), [label] if label else []
        while number >= len(self.scope.beginnings):
            trace.append(names[self._labels[number]])
            number = self._parents[number]
        trace.append(f"({names[self._labels[number]]})")
        self.found.append(Found(what, tuple(reversed(trace))))


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore and report; returns 1 if something is wrong.

    Rates are those of a second that the process had a core for itself.
    """
    parser = argparse.ArgumentParser(description="Explore every interleaving of a small scope.")
    parser.add_argument("--states", type=int, default=STATES, help=f"stop at so many in all (default {STATES})")
    parser.add_argument("--depth", type=int, default=99, help="stop after so many steps from each beginning")
    parser.add_argument("--scope", choices=tuple(SCOPES), action="append", help="only this scope")
    chosen = parser.parse_args(arguments)
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER)
    names = chosen.scope or list(SCOPES)
    began = time.process_time()
    runs = [_run(name, chosen.states // len(names), chosen.depth) for name in names]
    seconds = time.process_time() - began
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
        "cpu_seconds": round(seconds, 1),
    }
    _say(json.dumps(last))
    return 1 if last["violations"] else 0


def _run(name: str, limit: int, depth: int) -> Exploration:
    began = time.process_time()
    run = Exploration(SCOPES[name])
    while not run.exhausted and run.depth < depth and run.layer(limit=limit):
        rate = round(run.states / (time.process_time() - began))
        _say(f"scope {name}: depth {run.depth}, {run.states} states, {run.transitions} transitions, {rate} states/s")
    _say(f"scope {name}: {run.states} states, {run.transitions} transitions, {run.steps.decided} decisions; events:")
    _say("  " + ", ".join(f"{event} {count}" for event, count in sorted(run.steps.covered.items())))
    return run


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
