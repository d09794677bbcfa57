"""Where steps begin: what a state held is noted once; each step is told from it, and taken back.

Making a state again from its value for every step costs several times as much. Whatever hangs on a state is found by
walking it, so that a field which the core comes to have is put back without a word here. That everything was put back
is checked by whoever steps (`model.exploration`): the value after the last step is that of before the first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import compress, count
from operator import attrgetter, ne
from typing import Any

from kvledger.epochs import EpochState
from kvledger.geometry import UnitObject
from kvledger.kinds import Kind
from kvledger_storage.events import OfferRecord
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.copies.tier import Tier
from kvledgerd.core.epoch.epochs import Epoch
from kvledgerd.core.holdings import ArenaJob, Engine, Lease, OffloadJob, RelocationJob, RestoreJob, Unit, VerifyJob
from kvledgerd.core.index import Cell, Node, Tree
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.placement.caps import Amount
from kvledgerd.core.placement.ghosts import Ghosts
from kvledgerd.core.placement.orders import Order
from kvledgerd.core.placement.pools import Arena, Pool
from kvledgerd.core.state import Outcome, Quota, State
from kvledgerd.core.topology.topologies import Topology
from model.sides import Sides
from model.unlearning import Unlearning

__all__ = ["Base"]

_FRAMES = frozenset({Tree, Order})
"""Objects whose fields stay, while what lies in them changes."""
_OBJECTS = frozenset(
    {Node, Cell, Pool, Arena, Engine, Epoch, Lease, Unit, OffloadJob, RelocationJob, RestoreJob, Topology, Ghosts, Tier}
)
_TABLES = frozenset({dict, OrderedDict})
_LISTS = frozenset({list})
_FIXED = frozenset(
    {int, bool, str, bytes, tuple, type(None), KnownLayout, CoreConfig, ArenaJob, VerifyJob}
    | {Unlearning}  # but for a clock on which nothing depends
    | {EpochState, Kind, OfferRecord, Outcome, UnitObject, Amount, Quota}
)
"""What never changes in place."""
_FIELDS: dict[type, tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]] = {}


class Base:
    """What a state and its surroundings held when this was made.

    Everything that can change is noted as one of: fields of an object, entries of a table, items of a list.
    Each is noted with what it belongs to: an object, or a field of the state or its surroundings. The tables of a pool
    are compared by the numbers that change with them.
    """

    def __init__(self, state: State, sides: Sides) -> None:
        self._objects: list[Any] = []
        self._gets: list[tuple[Callable[[Any], tuple[Any, ...]], Any]] = []
        self._held: list[tuple[Any, ...]] = []
        self._now: list[tuple[Any, ...]] = []
        self._tables: list[Any] = []
        self._entries: list[Any] = []
        self._lists: list[Any] = []
        self._items: list[Any] = []
        self._owners: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
        self._hidden: dict[Any, list[tuple[Any, Any]]] = {}
        self._others: tuple[list[int], list[int], list[int]] = ([], [], [])
        self._walk(state, sides)

    def changed(self) -> dict[Any, None]:
        """Return what is not as it was, objects and names of fields; to be followed by `back`."""
        self._now = now = [get(one) for get, one in self._gets]
        self._others = others = (
            [*compress(count(), map(ne, now, self._held))],
            [*compress(count(), map(ne, self._tables, self._entries))],
            [*compress(count(), map(ne, self._lists, self._items))],
        )
        return {owners[i]: None for owners, found in zip(self._owners, others, strict=True) for i in found}

    def back(self) -> None:
        """Put back what `changed` found."""
        objects, tables, lists = self._others
        for i in objects:
            one = self._objects[i]
            for field, before, now in zip(_FIELDS[type(one)][0], self._held[i], self._now[i], strict=True):
                if before is not now:
                    setattr(one, field, before)
        for i in tables:
            table = self._tables[i]
            table.clear()
            table.update(self._entries[i])
        for i in lists:
            self._lists[i][:] = self._items[i]
        for pool in [self._objects[i] for i in objects] + [self._owners[2][i] for i in lists]:
            for table, entries in self._hidden.get(pool, ()):
                table.clear()
                table.update(entries)

    def _walk(self, state: State, sides: Sides) -> None:
        todo: list[tuple[Any, Any]] = []
        for root in (state, sides):
            names, held = self._note_object(root, "counts")
            todo += [(value, name) for value, name in zip(held, names, strict=True) if type(value) not in _FIXED]
        seen: dict[int, None] = {}
        for one, owner in todo:  # grows while it is walked
            if id(one) not in seen:
                seen[id(one)] = None
                todo += self._note(one, owner)

    def _note(self, one: Any, owner: Any) -> Iterable[tuple[Any, Any]]:
        """Note one thing, and return what hangs on it."""
        kind = type(one)
        if kind in _FRAMES:
            return [(value, one) for value in map(one.__getattribute__, one.__slots__) if type(value) not in _FIXED]
        if kind in _OBJECTS:
            return [(value, one) for value in self._note_object(one, one)[1] if type(value) not in _FIXED]
        if kind in _TABLES and type(owner) is Pool:
            self._hidden.setdefault(owner, []).append((one, one.copy()))
            return ()
        if kind in _TABLES:
            self._tables.append(one)
            self._entries.append(one.copy())
            self._owners[1].append(owner)
            return [(value, owner) for value in one.values() if type(value) not in _FIXED]
        if kind in _LISTS:
            self._lists.append(one)
            self._items.append(one[:])
            self._owners[2].append(owner)
            return [(value, owner) for value in one if type(value) not in _FIXED]
        raise TypeError(f"{kind.__name__} is new to the explorer: tell it whether one changes in place")

    def _note_object(self, one: Any, owner: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        found = _FIELDS.get(type(one))
        if found is None:
            names = tuple(getattr(one, "__slots__", None) or vars(one))
            found = _FIELDS[type(one)] = names, attrgetter(*names)
        names, get = found
        held = get(one)
        self._objects.append(one)
        self._gets.append((get, one))
        self._held.append(held)
        self._owners[0].append(owner)
        return names, held
