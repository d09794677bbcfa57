"""What all events have in common, and the names of things that several of them use."""

import msgspec

__all__ = ["EventForm", "Placement"]

Placement = tuple[int, int]
"""Arena and offset in its data, bytes."""


class EventForm(msgspec.Struct, frozen=True, array_like=True):
    """Base of all events."""
