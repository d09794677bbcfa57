"""Where a record lies on disk: one name for it in the store, in the core and in what they tell each other."""

from typing import NamedTuple

__all__ = ["BlobRef"]


class BlobRef(NamedTuple):
    """Where a record lies: number of its segment, byte offset of its header, bytes of its payload."""

    segment: int
    offset: int
    length: int
