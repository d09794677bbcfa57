"""The five kinds of state and the three forms in which a group's bytes are cut.

Every entry of the cache has exactly one kind; there is no unknown and no mixed one. The numbers stand in the log, in
arena headers and on the wire: they are never reused and never renumbered.
"""

import enum

__all__ = ["Form", "Kind"]


class Kind(enum.IntEnum):
    """What an object holds, and so which rules, pool and eviction order it belongs to."""

    __hash__ = int.__hash__  # an enumeration's own hashes its name, by a call for each look-up of a pool

    COMPRESSED_KV = 1
    """One row per ``tokens_per_row`` tokens; 1 is plain full attention. Needed: all rows of [0, P)."""
    UNCOMPRESSED_TAIL = 2
    """Raw rows after the last whole row with their halo, and recurrent state. Needed: the state at exactly P."""
    SWA_WINDOW = 3
    """Keys and values of the last W tokens. Needed: the window that ends at P."""
    INDEXER_STATE = 4
    """Routing keys of a compressed group, from the same commit as the rows they index. Needed: all rows of [0, P)."""
    DISK_PREFIX = 5
    """The manifest of a boundary whose objects lie on disk, complete and verified."""


class Form(enum.StrEnum):
    """How the bytes of a group are cut into objects."""

    ROWS = "rows"
    """Append-only; one object a block, may be cut at any whole row."""
    PAGED_WINDOW = "paged_window"
    """Pages of ``page_tokens``, each true for its own positions."""
    SNAPSHOT = "snapshot"
    """One object, true at exactly one boundary; nothing can be cut out of it."""
