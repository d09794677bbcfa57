"""The writer loop in numbers: one record for metrics, status reports and the watchdog."""

import msgspec

__all__ = ["WriterStatistics"]


class WriterStatistics(msgspec.Struct, frozen=True):
    """The writer loop in numbers.

    Attributes:
        capacity: Commands that the queue takes.
        queued: Commands in it.
        parked: Commands that wait for jobs.
        waiting: Replies and effects that wait for the log.
        decided: Commands decided so far.
        faults: Decisions that ended in an exception; each is a bug.
        last_seq: Seq of the last event.
        written_seq: Last seq that survives a crash of the daemon.
        durable_seq: Last seq that survives a power cut.
        promised_seq: Last seq whose being durable somebody waits for, or waited.
    """

    capacity: int
    queued: int
    parked: int
    waiting: int
    decided: int
    faults: int
    last_seq: int
    written_seq: int
    durable_seq: int
    promised_seq: int
