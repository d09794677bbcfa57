"""Older forms of events, brought up to date while they are read.

An event's name carries the version of its form. Whoever changes a form gives it the next version, and adds here how the
fields of the older one become those of the newer: a pure function of the fields, since a replay must come to the same
state in every process. Steps are chained, so each knows of its neighbour only. Golden segments of every released
version stay in the tests and are read through this table. Nothing was released yet, so it is empty.
"""

from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["UPCASTERS", "Fields", "Upcaster", "upcast"]

Fields = list[object]
"""An event as msgpack arrays hold it: its name with version, then its fields in order."""
Upcaster = Callable[[Fields], Fields]
"""Returns the next newer form, its name included; must not change what it is given."""

UPCASTERS: Final[dict[str, Upcaster]] = {}
"""Name with version of an older form, to the step to the next one."""


def upcast(event: Fields, steps: Mapping[str, Upcaster]) -> Fields:
    """Return an event in the newest form that the steps lead to; as it is if none begins with its form."""
    while event and isinstance(event[0], str) and event[0] in steps:
        event = steps[event[0]](event)
    return event
