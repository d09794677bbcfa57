"""What is asked of kvledger and of each peer alike, so that both sides do the same work with the same bytes."""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from kvledgerd.bench.layouts import MIB, megabyte_blocks
from kvledgerd.bench.scale import Scale

__all__ = ["UNITS", "LostError", "Peer", "System", "UnusablePeerError", "Work", "tell", "work_for"]

UNITS: Final = 8
"""Units that a system holds at least, and that a restart has to bring back."""


class UnusablePeerError(Exception):
    """A peer is installed and does not start; the message is what it said."""


class LostError(Exception):
    """A peer has come back and holds nothing; the message is what showed it."""


class Work(NamedTuple):
    """What every system is given.

    Attributes:
        unit: The bytes of a unit; random, so that none can be compressed or taken for another.
        sizes: Bytes of its objects, in order.
        blocks: Blocks of the prompt that is looked up.
    """

    unit: memoryview
    sizes: tuple[int, ...]
    blocks: int


class System(Protocol):
    """A cache that runs, filled and warm."""

    def put(self) -> None:
        """Store one more unit, under a name of its own."""

    def get(self) -> memoryview:
        """Read the last unit over another connection, and return the copy in memory that is used again."""

    def exists(self) -> int:
        """Look all blocks up and return how many are there."""

    def restart(self) -> float:
        """Kill what holds `UNITS` units with SIGKILL, start it again and read an object, whose bytes are compared.

        Returns:
            Seconds from the signal until the object is read.

        Raises:
            LostError: Nothing is there any more.
        """


class Peer(NamedTuple):
    """A system that stands beside kvledger.

    Attributes:
        name: Its name in the names of rows.
        lacks: Returns what has to be installed before it can be measured, empty if nothing.
        run: Starts it; yields the system and the words of its configuration.
        exists_bound: Greatest part of its time for a look-up that kvledger may take, by the design.
        only_put: Whether only storing is measured, since the rest is measured in another configuration.
    """

    name: str
    lacks: Callable[[], str]
    run: Callable[[Work], AbstractContextManager[tuple[System, str]]]
    exists_bound: float = 1.0
    only_put: bool = False


def work_for(scale: Scale) -> Work:
    """Return the work of a scale: its unit of commits, in objects of the same sizes, and its look-up."""
    unit = memoryview(os.urandom(scale.commit_bytes))
    sizes = tuple(group.page_bytes for group in megabyte_blocks().groups)
    return Work(unit, sizes * (scale.commit_bytes // MIB), scale.blocks)


def tell(text: str) -> None:
    """Tell people what is not measured, and why."""
    sys.stderr.write(f"peers: {text}\n")
