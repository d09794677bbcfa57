"""Handing events to the log: what goes at once, what rides along, and what has been promised so far.

What one turn of the loop decided goes to the log together, at the turn's end: that costs one hand-over for dozens of
decisions, and a lone one waits for nobody. The log's thread gets its turn between two of the loop's, so while it syncs
the first decisions of a crowd, the loop decides the next ones.

Events of class `session` ride in the next frame. They are held back for a few milliseconds, so that a look-up does not
wake the log's thread, unless something that waits for the log comes along first. The order is that of the decisions,
and the events of one decision are one submission, since a crash must keep all or none of them.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from kvledgerd.core.decision import Ack
from kvledgerd.loop.ports import Recorder

__all__ = ["Journal"]

# How long events of class session wait for company. The client has its answer already; this is what a SIGKILL may cost.
_HOLD_SECONDS: Final = 0.005
_HOLD_DECISIONS: Final = 64


class Journal:
    """The loop's side of the log.

    Args:
        recorder: The log's writer.
        last_seq: Seq of the last event in the log.
        guard: Runs what a timer starts, and stops the loop if it raises.

    Attributes:
        last_seq: Seq of the last event that was decided, handed over or held back.
        promised: Last seq whose being written somebody waits for, or waited.
        promised_durable: Last seq whose being durable somebody waits for, or waited.
    """

    def __init__(self, recorder: Recorder, last_seq: int, guard: Callable[[Callable[[], None]], None]) -> None:
        self._recorder: Final = recorder
        self._guard: Final = guard
        self._held: list[Sequence[bytes]] = []
        self._due = self._durable = False
        self._timer: asyncio.TimerHandle | None = None
        self.last_seq = self.promised = self.promised_durable = last_seq

    def record(self, events: Sequence[bytes], awaited: Ack) -> None:
        """Take the encoded events of one decision; `turn_ends` hands them over.

        Args:
            events: At least one.
            awaited: Highest class that a reply or an effect of the decision waits for.
        """
        self.last_seq += len(events)
        self._held.append(events)
        if awaited is Ack.SESSION:
            return
        self.promised, self._due = self.last_seq, True
        if awaited is Ack.DURABLE:
            self.promised_durable, self._durable = self.last_seq, True

    def turn_ends(self) -> None:
        """Hand over what somebody waits for, with all before it; let the rest wait a little for company."""
        if self._due or len(self._held) >= _HOLD_DECISIONS:
            self.flush()
        elif self._held and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_HOLD_SECONDS, self._guard, self.flush)

    def flush(self) -> None:
        """Hand over everything."""
        self.cancel()
        if not self._held:
            return
        held, durable = self._held, self._durable
        self._held, self._due, self._durable = [], False, False
        seq = self._recorder.submit(held, durable=durable)
        assert seq == self.last_seq, f"the log counts {seq}, the loop {self.last_seq}"

    def cancel(self) -> None:
        """Let nothing happen by itself any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
