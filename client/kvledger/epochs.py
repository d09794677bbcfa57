"""Epochs: what one model with one set of weights is to the cache, from its first layout to its retirement."""

import enum

__all__ = ["EpochState"]


class EpochState(enum.StrEnum):
    """Where an epoch is in its life. An epoch is a model with one weights digest."""

    CANARY = "canary"
    """On trial beside the active one: stores and hits, within its share."""
    ACTIVE = "active"
    """The one that serves; a model has at most one."""
    DRAINING = "draining"
    """On its way out: look-ups still hit and leases go on, nothing new is stored, and it makes room first."""
    RETIRED = "retired"
    """Nothing of it can be used: all its objects are invalid."""
