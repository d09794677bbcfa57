"""What the shell needs of the parts that it drives, so that each can be replaced by a small one in a test.

The writer loop is the only caller of `Core` and `Recorder`; nothing else may change the state or the log.
"""

from collections.abc import Sequence
from typing import Protocol

from kvledger_storage.events import Event
from kvledgerd.core.commands import Command
from kvledgerd.core.decision import Decision, Effect

__all__ = ["Carrier", "Core", "Recorder"]


class Core(Protocol):
    """The pure core with the state it decides upon."""

    def decide(self, command: Command) -> Decision:
        """Decide one command; changes nothing."""

    def apply(self, event: Event) -> None:
        """Take one event into the state."""

    def encode(self, event: Event, time_ms: int, actor: str) -> bytes:
        """Return the event as it goes into the log, stamped with wall time (milliseconds) and who caused it."""

    def checkpoint(self) -> Event:
        """Return the event that records the digest of the state as it is now."""

    def engine_number(self, tenant: str, key: bytes) -> int | None:
        """Return the number of a living engine by the id that its connections show; None if there is none."""


class Recorder(Protocol):
    """The log, as far as the writer loop writes to it."""

    @property
    def spares(self) -> int:
        """Spare segments that stand ready."""

    @property
    def is_full(self) -> bool:
        """Whether the disk had no room for a spare segment when one was last made."""

    def submit(self, submissions: Sequence[Sequence[bytes]], *, durable: bool) -> int:
        """Queue the events of decisions, one after the other, and return the seq of the last event; never waits."""

    def look_for_room(self) -> None:
        """Try again to make the spare segments that are missing; never waits."""


class Carrier(Protocol):
    """Whoever carries effects out."""

    def carry(self, effect: Effect) -> None:
        """Start one effect and return at once; the answer comes as a command of its own."""
