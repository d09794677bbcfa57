"""The three ways to break a promise, as assertions with names, so that a fault run can count each by itself."""

from __future__ import annotations

from typing import NamedTuple


class AcknowledgedLostError(AssertionError):
    """Something that a client had been told is kept is not there any more."""


class MisjudgedError(AssertionError):
    """Damage went unnoticed, or a log that a crash explains was called rotten, or an event is not what was written."""


class WrongHitError(AssertionError):
    """A hit held other bytes than those that were stored."""


class Skip(NamedTuple):
    """What a judge returns for a case that could not be tried, with the reason."""

    why: str


def assert_kept(acknowledged, found):
    """Everything that was acknowledged is among what was found."""
    lost = sorted(set(acknowledged) - set(found))
    if lost:
        raise AcknowledgedLostError(f"acknowledged and lost: {lost}")


def assert_judged(right, why):
    """The judgement about a log is the right one."""
    if not right:
        raise MisjudgedError(why)
