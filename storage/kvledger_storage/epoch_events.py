"""Events about epochs: what a model's weights are to the cache."""

from kvledger.epochs import EpochState
from kvledger_storage.event_form import EventForm

__all__ = ["EpochAdded", "EpochChanged", "KernelRetired"]


class EpochAdded(EventForm, frozen=True, tag="epoch_added.1"):
    """A model came with weights that its tenant had not shown before, or with unnamed ones of one engine.

    Attributes:
        number: Number of the epoch.
        tenant: Whose it is.
        model: Name of the model.
        weights: Digest of the weights; empty for the epoch of one engine.
        engine: That engine, 0 for none.
        state: What it begins as.
        share: Per cent of the caps that it may take.
    """

    number: int
    tenant: str
    model: str
    weights: str
    engine: int
    state: EpochState
    share: int


class EpochChanged(EventForm, frozen=True, tag="epoch_changed.1"):
    """An epoch became something else, or got another share; retired, all its objects became invalid with this event.

    Attributes:
        epoch: Its number.
        state: What it is now.
        share: Per cent of the caps that it may take.
        drained: The epoch that was active before it and drains now, 0 if there was none.
    """

    epoch: int
    state: EpochState
    share: int
    drained: int


class KernelRetired(EventForm, frozen=True, tag="kernel_retired.1"):
    """A kernel ABI was retired in an epoch; the objects of all its layouts with that ABI became invalid with this."""

    epoch: int
    name: str
    number: int
