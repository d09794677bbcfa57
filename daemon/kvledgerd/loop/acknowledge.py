"""Replies and effects that wait until the log has reached a sequence number.

The log writer reports two numbers that only grow: written (a crash of the daemon keeps it) and durable (a power cut
keeps it). What was queued for one of them leaves in the order in which it was queued, so that an effect never
overtakes the one before it, and a reply never overtakes the effects of its own decision.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from kvledgerd.core.decision import Ack

__all__ = ["AckQueue"]

Action = Callable[[], None]


class AckQueue:
    """What waits for the log.

    Args:
        last_seq: Last seq that is in the log already, so written and durable.
    """

    def __init__(self, last_seq: int) -> None:
        self._reached: Final = {Ack.WRITTEN: last_seq, Ack.DURABLE: last_seq}
        self._waiting: Final[dict[Ack, deque[tuple[int, Action]]]] = {Ack.WRITTEN: deque(), Ack.DURABLE: deque()}

    def __repr__(self) -> str:
        return f"<AckQueue written {self.seq(Ack.WRITTEN)}, durable {self.seq(Ack.DURABLE)}, {self.waiting} wait>"

    def seq(self, ack: Ack) -> int:
        """Return the last seq that is known to be written or durable."""
        return self._reached[ack]

    @property
    def waiting(self) -> int:
        """Number of replies and effects that wait."""
        return sum(map(len, self._waiting.values()))

    def run_at(self, ack: Ack, seq: int, action: Action) -> None:
        """Run ``action`` when ``seq`` has reached class ``ack`` and all that was queued for it before has run."""
        if ack is Ack.SESSION or (seq <= self._reached[ack] and not self._waiting[ack]):
            action()
        else:
            self._waiting[ack].append((seq, action))

    def reached(self, ack: Ack, seq: int) -> None:
        """Take in that everything up to ``seq`` has reached ``ack``, and run what waited for it."""
        self._reached[ack] = max(seq, self._reached[ack])
        queue = self._waiting[ack]
        while queue and queue[0][0] <= self._reached[ack]:
            queue.popleft()[1]()
