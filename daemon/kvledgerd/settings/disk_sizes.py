"""What the disk quota is divided into: data files, what writes leave to the cleaner, and what records may take.

The quota is about files, dead bytes and headers included; the core counts what is alive. So that what the core admits
always finds its place, after cleaning at worst, records may take only what is left of the quota when everything else is
at its largest. Otherwise a disk full of dead bytes would refuse what was admitted, and nothing old would be pushed out
for it, since by the core's count there was room.
"""

from typing import Final

from kvledger_storage.disk.pages import PAGE
from kvledgerd.settings.table import Config

__all__ = ["cleaning_reserve", "disk_segment_bytes", "records_cap"]

_SEGMENTS: Final = 16
"""Data files that the quota has room for at least."""
_LEAST_SEGMENT: Final = 64 << 10


def disk_segment_bytes(config: Config) -> int:
    """Return the size that data files are filled up to: small enough beside the quota that cleaning has room."""
    return min(config.disk_segment_bytes, max(_LEAST_SEGMENT, config.disk_bytes // _SEGMENTS))


def cleaning_reserve(config: Config) -> int:
    """Return the bytes of the disk quota that writes leave to the cleaner: one segment's worth of copies."""
    return min(disk_segment_bytes(config) + 2 * PAGE, config.disk_bytes // 8)


def records_cap(config: Config) -> int:
    """Return the bytes that live records may take for all of them to fit into the files whatever is dead beside them.

    Beside the reserve there are a header for each file, of which any two in a row hold more than one is filled up to,
    and what is dead in the open one, which is cleaned once that is more than what is alive in it.
    """
    segment = disk_segment_bytes(config)
    headers = PAGE * (2 * config.disk_bytes // segment + 2)
    return max(0, config.disk_bytes - cleaning_reserve(config) - headers - segment // 2)
