"""The disk tier as a whole, as far as it outlives a start: whether it takes writes, and how far the scrubber is."""

import msgspec

__all__ = ["Tier"]


class Tier(msgspec.Struct):
    """What the log knows of the disk tier beside its records.

    Attributes:
        read_only: Why it takes no writes; empty if it takes them.
        segment: Segment that is being scrubbed; 0 between passes.
        offset: Byte of it at which the scrubber goes on; 0 if it is through with that segment.
        passes: Passes that ended.
        ended_ms: Wall time at which the last one ended, ms since 1970; 0 before the first.
        records: Records that were ever scrubbed.
        bytes: What these took on disk.
        damaged: Records that were found damaged after they had been written, restores left out.
        lacking: Disk prefixes that lack a part, by cell, as far as this pass has seen; ascending.
        lacked: The same as the pass before it had seen.
        paused: An operator stopped the scrubber.
        due: An operator asked for a pass before its time.
    """

    read_only: str = ""
    segment: int = 0
    offset: int = 0
    passes: int = 0
    ended_ms: int = 0
    records: int = 0
    bytes: int = 0
    damaged: int = 0
    paused: bool = False
    due: bool = False
    lacking: tuple[int, ...] = ()
    lacked: tuple[int, ...] = ()

    def counters(self) -> dict[str, int]:
        """Return it in numbers, for status reports."""
        return {
            "disk_read_only": int(bool(self.read_only)),
            "disk_records_damaged": self.damaged,
            "scrub_paused": int(self.paused),
            "scrub_segment": self.segment,
            "scrub_passes": self.passes,
            "scrub_records": self.records,
            "scrub_bytes": self.bytes,
        }

    def notes(self) -> dict[str, str]:
        """Return what an operator has to know of it, by what it is about."""
        return {"disk_read_only": self.read_only} if self.read_only else {}

    def facts(self) -> tuple[str | int | tuple[int, ...], ...]:
        """Return everything that the digest of the state has to cover."""
        return msgspec.structs.astuple(self)
