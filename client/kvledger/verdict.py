"""The vocabulary of a verdict: layers, reason codes, exactness, cuts.

Codes are words that people read in `explain`, in the log and in metrics; docs/verdict.md explains each with an example.
"""

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

from kvledger.kinds import Kind

__all__ = ["Code", "Cut", "Exactness", "Layer"]


class Layer(enum.IntEnum):
    """The four validation layers, cheap to dear; a candidate falls at the first that fails."""

    BLOCK = 1
    IDENTITY = 2
    STATE = 3
    BYTES = 4


class Exactness(enum.StrEnum):
    """What a resume at a boundary yields."""

    EXACT = "exact"
    """The very bytes that were committed."""
    REPLAY = "replay"
    """Exact after recomputing the replay's tokens without overwriting cached rows."""
    APPROX = "approx"
    """Approximate: a lossy tier or a short replay."""


class Code(enum.StrEnum):
    """Why tokens are not usable."""

    NO_MATCH = "no_match"
    """Nothing is known of these tokens."""
    BELOW_BLOCK = "below_block"
    """The prompt is shorter than one block and no boundary inside it is stored."""
    LEAVE = "leave"
    """The caller must compute these tokens itself."""
    ALIGNMENT = "alignment"
    """The caller's alignment allows no boundary here."""
    UNEVEN = "uneven"
    """A group ends no whole row or page here and has no tail."""
    ABI_MISMATCH = "abi_mismatch"
    """What is stored was made by another kernel ABI; the detail names the field."""
    IDENTITY_MISMATCH = "identity_mismatch"
    """What is stored belongs to other weights, revision, position encoding or the like; the detail names the field."""
    EPOCH_RETIRED = "epoch_retired"
    """The weights or a kernel ABI of the layout that asks were retired."""
    ROWS_MISSING = "rows_missing"
    """Rows of a compressed group are missing."""
    INDEXER_MISSING = "indexer_missing"
    """Rows of an indexer are missing."""
    INDEXER_UNCOUPLED = "indexer_uncoupled"
    """Indexer rows come from another commit than the rows they index."""
    OTHER_RUN = "other_run"
    """All is there, but under strict provenance its states belong to other rows than those that are stored."""
    WINDOW_MISSING = "window_missing"
    """A page or snapshot of a window is missing."""
    TAIL_MISSING = "tail_missing"
    """The uncompressed tail or recurrent state is missing."""
    HALO_MISSING = "halo_missing"
    """The raw rows before the last whole row are missing."""
    ON_DISK = "on_disk"
    """Complete, but on disk, and the caller did not ask for a restore."""
    RESTORE_COST = "restore_cost"
    """Complete with what lies on disk, but reading that back takes longer than computing it."""
    DEGRADED = "degraded"
    """Complete with what lies on disk, but restores have stopped since too many of them failed."""
    LOSSY = "lossy"
    """Complete, but with an approximation, and the caller does not allow that."""
    BYTES_DAMAGED = "bytes_damaged"
    """Stored bytes do not have the committed fingerprint."""
    MINIMUM = "minimum"
    """Usable, but less than the caller's minimum."""


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """A run of tokens that a plain hash cache would have claimed or the prompt holds, and why they are not usable.

    Attributes:
        start: First token.
        end: Token after the last.
        layer: Layer at which it fell.
        group: Name of the group that cut, empty if none did.
        kind: Kind of that group, None if none did.
        code: The reason.
        detail: The field, object or number behind the reason.
    """

    start: Annotated[int, Meta(ge=0)]
    end: Annotated[int, Meta(ge=0)]
    layer: Layer
    group: Annotated[str, Meta(max_length=64)]
    kind: Kind | None
    code: Code
    detail: Annotated[str, Meta(max_length=512)] = ""

    def __str__(self) -> str:
        """Return the cut as one line for people."""
        who = f" {self.group} ({self.kind.name})" if self.kind is not None else ""
        why = f": {self.detail}" if self.detail else ""
        return f"[{self.start}, {self.end}) layer {self.layer.value} {self.layer.name}{who} {self.code.value}{why}"
