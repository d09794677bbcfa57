"""What became of each model's weights, and who did it: the story of all epochs, from the log alone."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from kvledger.epochs import EpochState
from kvledger_storage.events import (
    EngineLeft,
    EpochAdded,
    EpochChanged,
    IncarnationStarted,
    KernelRetired,
    LayoutRegistered,
)
from kvledgerd.audit.replay import Damage, Moment, moments
from kvledgerd.core.epoch.epoch_objects import count_objects, ending_cells
from kvledgerd.core.epoch.epochs import Epoch

__all__ = ["EpochEntry", "epoch_story"]


class EpochEntry(msgspec.Struct, frozen=True):
    """One thing that happened to an epoch.

    Attributes:
        seq: The event.
        time_ms: When, ms since 1970.
        actor: Who caused it, as the log has it.
        who: What people call the engine or tool behind the actor, with its uid; empty for the daemon.
        model: Name of the model.
        weights: Digest of the weights, empty for unnamed ones.
        what: What it became, or what else happened.
        objects: Objects that became invalid.
        detail: The rest, for people.
    """

    seq: int
    time_ms: int
    actor: str
    who: str
    model: str
    weights: str
    what: str
    objects: int = 0
    detail: str = ""


def epoch_story(data: Path, damage: Damage | None = None) -> Iterator[EpochEntry]:
    """Yield everything that happened to epochs, in the order of the log; see `moments` for `damage`.

    What was known before the part of the log that is kept comes first, as it stood then.
    """
    first = True
    for moment in moments(data, damage):
        for epoch in moment.state.epochs.values() if first else ():
            yield _of(moment, epoch, epoch.state, detail=f"as it stood, {_share(epoch.share)}")
        first = False
        yield from _entries(moment)


def _entries(moment: Moment) -> Iterator[EpochEntry]:
    event, epochs = moment.event, moment.state.epochs
    match event:
        case EpochAdded():
            owner = f"of engine {event.engine} alone" if event.engine else _share(event.share)
            yield _entry(moment, event.model, event.weights, event.state, detail=owner)
        case LayoutRegistered():
            epoch = epochs[event.epoch]
            yield _entry(moment, epoch.model, epoch.weights, "layout", detail=f"layout {event.number} belongs to it")
        case EpochChanged():
            if event.drained:
                yield _of(moment, epochs[event.drained], EpochState.DRAINING, detail="another was activated")
            epoch = epochs[event.epoch]
            ended = _objects(moment, epoch) if event.state is EpochState.RETIRED else 0
            yield _of(moment, epoch, event.state, ended, _share(event.share))
        case KernelRetired():
            kernel = (event.name, event.number)
            detail = f"kernel ABI {event.name} {event.number}"
            yield _of(
                moment, epochs[event.epoch], "kernel retired", _objects(moment, epochs[event.epoch], kernel), detail
            )
        case EngineLeft():
            yield from _ended(moment, {event.engine: None})
        case IncarnationStarted():
            yield from _ended(moment, dict.fromkeys(moment.state.engines))


def _ended(moment: Moment, engines: dict[int, None]) -> Iterator[EpochEntry]:
    for epoch in moment.state.epochs.values():
        if epoch.engine in engines and epoch.state is not EpochState.RETIRED:
            detail = f"engine {epoch.engine} ended and its weights have no name"
            yield _of(moment, epoch, EpochState.RETIRED, _objects(moment, epoch), detail)


def _objects(moment: Moment, epoch: Epoch, kernel: tuple[str, int] | None = None) -> int:
    return count_objects(moment.state, ending_cells(moment.state, epoch, kernel))


def _of(moment: Moment, epoch: Epoch, what: str, objects: int = 0, detail: str = "") -> EpochEntry:
    return _entry(moment, epoch.model, epoch.weights, what, objects, detail)


def _entry(moment: Moment, model: str, weights: str, what: str, objects: int = 0, detail: str = "") -> EpochEntry:
    return EpochEntry(moment.seq, moment.time_ms, moment.actor, _who(moment), model, weights, what, objects, detail)


def _who(moment: Moment) -> str:
    number = moment.actor.removeprefix("engine:")
    engine = moment.state.engines.get(int(number)) if number.isdecimal() else None
    return f"{engine.name or 'unnamed'} (uid {engine.uid}, pid {engine.pid})" if engine is not None else ""


def _share(share: int) -> str:
    return f"share {share} %"
