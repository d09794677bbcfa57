"""Requests about epochs: what a model's weights are to the cache."""

from typing import Annotated

from msgspec import Meta

from kvledger.epochs import EpochState
from kvledger.wire.fields import GroupName, Message, Small

__all__ = ["Epochs", "SetEpoch"]


class Epochs(Message, frozen=True, tag="epochs"):
    """Ask for all epochs of the caller's tenant."""


class SetEpoch(Message, frozen=True, tag="set_epoch"):
    """Change an epoch, or retire a kernel ABI in it.

    Attributes:
        model: Name of the model.
        weights: Digest of the weights.
        state: What the epoch becomes.
        share: Per cent of the caps on memory and disk that its objects may take; 0 leaves it as it is.
        kernel: Only retire this kernel ABI in the epoch: its name; empty for the epoch itself.
        kernel_number: Its number.
    """

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    weights: Annotated[str, Meta(min_length=1, max_length=128)]
    state: EpochState
    share: Annotated[int, Meta(ge=0, le=100)] = 0
    kernel: GroupName = ""
    kernel_number: Small = 0
