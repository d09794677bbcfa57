"""What the counters of a daemon have to be, added up from the events of its log alone: a row for each counter."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvledger import Cache, Kind
from kvledger.wire.replies import StatusReport
from kvledger.wire.requests import Status
from kvledger_storage.disk.record import record_bytes
from kvledger_storage.disk_events import MANIFEST, RecordsMoved
from kvledger_storage.events import (
    IncarnationStarted,
    LeaseSettled,
    LookedUp,
    Offloaded,
    OffloadFailed,
    RestoreFinished,
    RestoreStarted,
)
from kvledgerd.audit.replay import Moment, moments
from kvledgerd.core.commands import Ask, Caller
from kvledgerd.core.config import DRILL_TENANT
from kvledgerd.core.incarnation.decide_status import status
from kvledgerd.core.state import State
from kvledgerd.metrics.table import METRICS, Basis

Told = Iterator[tuple[str, int]]
"""The kind of a number, empty for none, and the number."""


@dataclass
class _Open:
    """Events to which later ones refer."""

    verdicts: dict[int, LookedUp] = field(default_factory=dict)
    restores: dict[int, RestoreStarted] = field(default_factory=dict)


def _reach(place: int) -> Callable[[Moment, _Open], Told]:
    """Return the sum of one of the three numbers of hits: by hash, recoverable, ready."""

    def told(moment: Moment, _: _Open) -> Told:
        event = moment.event
        if moment.state.layouts[event.layout].tenant != DRILL_TENANT:
            for kind, *rest in event.reach:
                yield Kind(kind).name if kind else "", (event.hash_tokens, *rest)[place]

    return told


def _kept_inside(moment: Moment, known: _Open) -> Told:
    """Yield what a ready boundary inside a block adds to what lay ready at the end of one."""
    verdict = known.verdicts[moment.event.lease]
    kept = verdict.offers[moment.event.offer]
    if kept.residue and kept.ready:
        blocks = moment.state.nodes[kept.node].depth if kept.node in moment.state.nodes else 0
        position = blocks * moment.state.layouts[verdict.layout].layout.block_tokens + kept.residue
        yield "", max(0, position - next((ready for kind, _, ready in verdict.reach if not kind), 0))


def _outcomes(moment: Moment, known: _Open) -> Iterator[tuple[str, int, str]]:
    """Yield kind, bytes and error of each object of a restore that ended."""
    for (number, slot), error in zip(known.restores[moment.event.job].objects, moment.event.errors, strict=True):
        cell = moment.state.cells[number]
        layout = moment.state.layouts[cell.layout]
        yield layout.slot_kinds[slot].name, layout.length_of(cell, slot), error


def _restores(*, promotion: bool, well: bool) -> Callable[[Moment, _Open], Told]:
    """Return the number of kinds of which restores brought all, or failed to."""

    def told(moment: Moment, known: _Open) -> Told:
        if known.restores[moment.event.job].promotion is not promotion:
            return
        for kind in {kind for kind, _, _ in _outcomes(moment, known)}:
            errors = [error for name, _, error in _outcomes(moment, known) if name == kind]
            if well != any(error and not error.startswith("cancelled") for error in errors):
                yield kind, int(not well or not any(errors))

    return told


def _warmed(moment: Moment, known: _Open) -> Told:
    yield "", int(known.restores[moment.event.job].promotion and not any(moment.event.errors))


def _warmed_bytes(moment: Moment, known: _Open) -> Told:
    if known.restores[moment.event.job].promotion:
        yield "", sum(size for _, size, error in _outcomes(moment, known) if not error)


def _once(moment: Moment, _: _Open) -> Told:
    assert moment.event is not None
    yield Kind.DISK_PREFIX.name, 1


def _moved(moment: Moment, _: _Open) -> Told:
    yield "", len(moment.event.records)


def _moved_bytes(moment: Moment, _: _Open) -> Told:
    for number, slot, _, _ in moment.event.records:
        cell = moment.state.cells[number]
        length = cell.manifest[2] if slot == MANIFEST else moment.state.layouts[cell.layout].stored_length(cell, slot)
        yield "", record_bytes(length)


SUMS: dict[str, tuple[type, Callable[[Any, _Open], Told]]] = {
    "hash_hit_tokens": (LookedUp, _reach(0)),
    "recoverable_hit_tokens": (LookedUp, _reach(1)),
    "ready_hit_tokens": (LookedUp, _reach(2)),
    "residue_hit_tokens": (LeaseSettled, _kept_inside),
    "restore_done": (RestoreFinished, _restores(promotion=False, well=True)),
    "restore_failed": (RestoreFinished, _restores(promotion=False, well=False)),
    "promotion_done": (RestoreFinished, _restores(promotion=True, well=True)),
    "promotion_failed": (RestoreFinished, _restores(promotion=True, well=False)),
    "warm_prefixes": (RestoreFinished, _warmed),
    "warm_bytes": (RestoreFinished, _warmed_bytes),
    "offload_done": (Offloaded, _once),
    "offload_failed": (OffloadFailed, _once),
    "cleaned_records": (RecordsMoved, _moved),
    "cleaned_bytes": (RecordsMoved, _moved_bytes),
}
"""Counter to the events that it sums, and what each of them adds."""


def added_up(data: Path, seq: int) -> tuple[State, Counter[str]]:
    """Return the state that a log makes up to an event, and what its events since the latest start add up to.

    Args:
        data: The data directory.
        seq: That event; written by now.
    """
    state, sums, known = None, Counter[str](), _Open()
    for moment in moments(data):
        state = moment.state  # the same object all along, with the events before this one
        if moment.seq > seq:
            break
        event = moment.event
        if isinstance(event, IncarnationStarted):
            sums.clear()
        elif isinstance(event, LookedUp):
            known.verdicts[event.lease] = event
        elif isinstance(event, RestoreStarted):
            known.restores[event.job] = event
        for name, (kind_of_event, told) in SUMS.items():
            if type(event) is kind_of_event:
                for kind, number in told(moment, known):
                    sums[f"{name}.{kind}" if kind else name] += number
    assert state is not None, "the log is empty"
    return state, sums


def disagreeing(report: StatusReport, data: Path) -> dict[str, tuple[int, int]]:
    """Return each metric of a report that the log has otherwise: what the daemon tells, and what the log makes.

    Args:
        report: An operator's report of all tenants.
        data: The daemon's data directory; its log holds all events up to that of the report.
    """
    state, sums = added_up(data, report.seq)
    assert report.digest == f"{state.digest():016x}", "the report is not of that event"
    held = status(state, Ask(Caller(0, 0, "", operator=True), Status()), Status()).reply.counters
    bases = {metric.counter: metric.basis for metric in METRICS}
    found = {}
    for name in report.counters.keys() | sums.keys():
        basis = bases[name.partition(".")[0]]
        if basis is not Basis.DAEMON:
            found[name] = report.counters.get(name, 0), (held if basis is Basis.LOG else sums).get(name, 0)
    return {name: both for name, both in found.items() if both[0] != both[1]}


def settled(cache: Cache) -> StatusReport:
    """Return the report of a daemon that has nothing to do and has written all that it decided."""
    end = time.monotonic() + 60
    while True:
        report = cache.status()
        now = report.counters
        if now["log_written_seq"] == report.seq and not now["warm_running"] and not now["jobs"]:
            return report
        assert time.monotonic() < end, report
        time.sleep(0.005)
