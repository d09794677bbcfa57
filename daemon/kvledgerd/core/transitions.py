"""The life of an object, as one table.

States are names for sets of copies: nothing else about an object's life is stored, and nothing else decides it. Two
rules hold for this file: everything about states lives here, and what is not in the table is refused and changes
nothing.

An object begins in a reservation (RESERVED, COPYING), where nobody can see it. A commit publishes it. Where a log was
lost it begins on disk, as a rebuild found it. From then on its copies come and go:

- COMMITTED has a memory copy, ON_DISK a disk copy, MIRRORED both;
- RELOCATE changes where the memory copy of COMMITTED or MIRRORED lies, and nothing else;
- OFFLOADING is COMMITTED while its bytes are being written, RESTORING is ON_DISK while they are being read;
- REWRITING is MIRRORED while its bytes are being written anew: the older record is one until the new one is durable;
- EVICTED, ABORTED, INVALID and QUARANTINED have none and accept nothing: the same tokens may be stored again, as a new
  life of the same name.

Copies in device pools have a table of their own beside it, since they are the engine's: each pool has at most one of an
object, it comes and goes whatever the others do, and only its engine sees it. It is ASKED for, and RESIDENT when the
engine says that it is filled.
"""

import enum

__all__ = [
    "AT_REST",
    "DEVICE_TRANSITIONS",
    "IN_MEMORY",
    "ON_DISK_TOO",
    "STATES",
    "TRANSITIONS",
    "DeviceHappening",
    "DeviceState",
    "Happening",
    "ObjectState",
    "TransitionError",
    "follow",
    "follow_on_device",
]


class ObjectState(enum.IntEnum):
    """Which copies an object has."""

    __hash__ = int.__hash__  # an enumeration's own hashes its name, by a call for each look-up in the table

    VACANT = 0
    RESERVED = 1
    COPYING = 2
    COMMITTED = 3
    OFFLOADING = 4
    MIRRORED = 5
    ON_DISK = 6
    RESTORING = 7
    EVICTED = 8
    ABORTED = 9
    INVALID = 10
    QUARANTINED = 11
    REWRITING = 12


class Happening(enum.IntEnum):
    """What can happen to an object."""

    __hash__ = int.__hash__  # as above

    RESERVE = 1
    COPY = 2
    COMMIT = 3
    ABORT = 4
    OFFLOAD = 5
    OFFLOADED = 6
    OFFLOAD_FAILED = 7
    DROP_MEMORY = 8
    DROP_DISK = 9
    RESTORE = 10
    RESTORED = 11
    RESTORE_FAILED = 12
    MEMORY_DAMAGED = 13
    DISK_DAMAGED = 14
    INVALIDATE = 15
    RELOCATE = 16
    FIND = 17


STATES = tuple(ObjectState)
"""The states by number, found without the call that an enumeration spends on it."""

_S, _H = ObjectState, Happening

TRANSITIONS: dict[ObjectState, dict[Happening, ObjectState]] = {
    _S.VACANT: {_H.RESERVE: _S.RESERVED, _H.FIND: _S.ON_DISK},
    _S.RESERVED: {_H.COPY: _S.COPYING, _H.ABORT: _S.ABORTED},
    _S.COPYING: {_H.COPY: _S.COPYING, _H.COMMIT: _S.COMMITTED, _H.ABORT: _S.ABORTED},
    _S.COMMITTED: {
        _H.OFFLOAD: _S.OFFLOADING,
        _H.DROP_MEMORY: _S.EVICTED,
        _H.RELOCATE: _S.COMMITTED,
        _H.MEMORY_DAMAGED: _S.QUARANTINED,
        _H.INVALIDATE: _S.INVALID,
    },
    _S.OFFLOADING: {
        _H.OFFLOADED: _S.MIRRORED,
        _H.OFFLOAD_FAILED: _S.COMMITTED,
        _H.INVALIDATE: _S.INVALID,
    },
    _S.MIRRORED: {
        _H.OFFLOAD: _S.REWRITING,
        _H.DROP_MEMORY: _S.ON_DISK,
        _H.RELOCATE: _S.MIRRORED,
        _H.DROP_DISK: _S.COMMITTED,
        _H.MEMORY_DAMAGED: _S.ON_DISK,
        _H.DISK_DAMAGED: _S.COMMITTED,
        _H.INVALIDATE: _S.INVALID,
    },
    _S.REWRITING: {
        _H.OFFLOADED: _S.MIRRORED,
        _H.OFFLOAD_FAILED: _S.MIRRORED,
        _H.DISK_DAMAGED: _S.OFFLOADING,
        _H.INVALIDATE: _S.INVALID,
    },
    _S.ON_DISK: {
        _H.RESTORE: _S.RESTORING,
        _H.DROP_DISK: _S.EVICTED,
        _H.DISK_DAMAGED: _S.QUARANTINED,
        _H.INVALIDATE: _S.INVALID,
    },
    _S.RESTORING: {
        _H.RESTORED: _S.MIRRORED,
        _H.RESTORE_FAILED: _S.ON_DISK,
        _H.DISK_DAMAGED: _S.QUARANTINED,
        _H.INVALIDATE: _S.INVALID,
    },
    _S.EVICTED: {},
    _S.ABORTED: {},
    _S.INVALID: {},
    _S.QUARANTINED: {},
}


class DeviceState(enum.IntEnum):
    """What a device pool has of an object."""

    VACANT = 0
    ASKED = 1
    RESIDENT = 2
    FREED = 3
    GIVEN_UP = 4
    LOST = 5


class DeviceHappening(enum.IntEnum):
    """What can happen to an object in a device pool."""

    ASK = 1
    FILL = 2
    GIVE_UP = 3
    FREE = 4
    LOSE = 5


_D, _P = DeviceState, DeviceHappening

DEVICE_TRANSITIONS: dict[DeviceState, dict[DeviceHappening, DeviceState]] = {
    _D.VACANT: {_P.ASK: _D.ASKED},
    _D.ASKED: {_P.FILL: _D.RESIDENT, _P.GIVE_UP: _D.GIVEN_UP},
    _D.RESIDENT: {_P.FREE: _D.FREED, _P.LOSE: _D.LOST},
    _D.FREED: {},
    _D.GIVEN_UP: {},
    _D.LOST: {},
}
"""FREED made room or was asked for, LOST went with its pool; these three accept nothing and hold no pages."""

IN_MEMORY = frozenset({_S.COMMITTED, _S.OFFLOADING, _S.MIRRORED, _S.REWRITING})
ON_DISK_TOO = frozenset({_S.MIRRORED, _S.REWRITING, _S.ON_DISK, _S.RESTORING})
AT_REST = frozenset({_S.COMMITTED, _S.MIRRORED, _S.ON_DISK})
"""It has copies, and none of them is being written or read."""


class TransitionError(Exception):
    """An event asks for a change that the table does not know; the log or the code is wrong."""


def follow(state: ObjectState, happening: Happening) -> ObjectState:
    """Return the state that follows.

    Raises:
        TransitionError: the table has no such change.
    """
    after = TRANSITIONS[state].get(happening)
    if after is None:
        raise TransitionError(f"{happening.name} does not follow {state.name}")
    return after


def follow_on_device(state: DeviceState, happening: DeviceHappening) -> DeviceState:
    """Return the state that follows in a device pool.

    Raises:
        TransitionError: the table has no such change.
    """
    after = DEVICE_TRANSITIONS[state].get(happening)
    if after is None:
        raise TransitionError(f"{happening.name} does not follow {state.name} on a device")
    return after
