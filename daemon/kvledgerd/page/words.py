"""The words of the page: what kinds, layers, reasons and states mean, in one sentence each.

The long form, with what to do about it, is docs/verdict.md; a test sees that no kind, layer, reason or state lacks its
sentence here.
"""

from typing import Final, NamedTuple

from kvledger.kinds import Kind
from kvledger.verdict import Code, Layer
from kvledgerd.core.transitions import ObjectState

__all__ = [
    "KINDS",
    "LAYERS",
    "REASONS",
    "STATES",
    "KindWords",
    "count_words",
    "kind_words",
    "reason",
    "state_words",
]


class KindWords(NamedTuple):
    """How a kind is shown: a short mark, which tells it apart without its colour, and what it holds."""

    mark: str
    says: str


KINDS: Final = {
    Kind.COMPRESSED_KV.name: KindWords("KV", "compressed rows"),
    Kind.UNCOMPRESSED_TAIL.name: KindWords("TAIL", "raw tail, halo, recurrent state"),
    Kind.SWA_WINDOW.name: KindWords("SWA", "sliding windows"),
    Kind.INDEXER_STATE.name: KindWords("IDX", "indexer keys"),
    Kind.DISK_PREFIX.name: KindWords("DISK", "whole boundaries on disk"),
}
"""Name of a kind to its words, in the order of the legend."""

LAYERS: Final = {
    Layer.BLOCK.value: "whole blocks",
    Layer.IDENTITY.value: "identity and kernel ABI",
    Layer.STATE.value: "state of every group",
    Layer.BYTES.value: "bytes",
}
"""Number of a layer to what it looks at."""

REASONS: Final = {
    Code.NO_MATCH.value: "nothing is known of these tokens",
    Code.BELOW_BLOCK.value: "shorter than one block, and no state inside it is stored",
    Code.LEAVE.value: "the engine has to compute these tokens itself",
    Code.ALIGNMENT.value: "the engine's alignment allows no boundary here",
    Code.UNEVEN.value: "a group ends no whole row or page here and has no tail",
    Code.ABI_MISMATCH.value: "stored by another kernel ABI",
    Code.IDENTITY_MISMATCH.value: "stored by other weights, or another model configuration",
    Code.EPOCH_RETIRED.value: "these weights, or a kernel ABI, were retired",
    Code.ROWS_MISSING.value: "rows are missing",
    Code.INDEXER_MISSING.value: "the indexer's keys are missing",
    Code.INDEXER_UNCOUPLED.value: "indexer keys and rows come from different commits",
    Code.OTHER_RUN.value: "these states belong to the rows of another run",
    Code.WINDOW_MISSING.value: "the sliding window that ends here is missing",
    Code.TAIL_MISSING.value: "the tail or recurrent state at this boundary is missing",
    Code.HALO_MISSING.value: "the raw rows before the last whole row are missing",
    Code.ON_DISK.value: "complete on disk, and no restore was asked for",
    Code.RESTORE_COST.value: "complete on disk, but reading takes longer than computing",
    Code.DEGRADED.value: "complete on disk, but restores have stopped: too many failed",
    Code.LOSSY.value: "complete, but approximate after it was quantised, which the engine does not take",
    Code.BYTES_DAMAGED.value: "stored bytes are not those that were committed",
    Code.MINIMUM.value: "usable, but less than the engine's minimum",
}
"""Reason code to its sentence."""

STATES: Final = {
    ObjectState.VACANT.name: "neither in memory nor on disk",
    ObjectState.RESERVED.name: "reserved, not committed",
    ObjectState.COPYING.name: "being copied, not committed",
    ObjectState.COMMITTED.name: "in memory",
    ObjectState.OFFLOADING.name: "in memory, on its way to disk",
    ObjectState.MIRRORED.name: "in memory and on disk",
    ObjectState.REWRITING.name: "in memory and on disk, being written anew",
    ObjectState.ON_DISK.name: "on disk",
    ObjectState.RESTORING.name: "on disk, on its way to memory",
    ObjectState.EVICTED.name: "evicted",
    ObjectState.ABORTED.name: "given up before its commit",
    ObjectState.INVALID.name: "invalid: its weights or ABI were retired",
    ObjectState.QUARANTINED.name: "quarantined: its bytes were found damaged",
}
"""State of an object to where it is."""


_COUNTS: Final = {"queue_commands": "queued", "queue_parked": "parked"}
"""Name of a counter to what it is called where there is little room; all others are called by their names."""


def count_words(name: str) -> str:
    """Return what a counter is called."""
    return _COUNTS.get(name, name.replace("_", " "))


def kind_words(kind: str) -> KindWords:
    """Return the words of a kind; one that a newer log names is shown by its name."""
    return KINDS.get(kind, KindWords(kind, ""))


def reason(code: str) -> str:
    """Return what a reason code means."""
    return REASONS.get(code, code.replace("_", " "))


def state_words(state: str) -> str:
    """Return where an object in a state is."""
    return STATES.get(state, state.replace("_", " ").lower())
