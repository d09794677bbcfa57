"""Layouts for tests of the core: small groups whose geometry is that of real models.

Letters as in the field cases: C compressed rows, X indexer, S sliding window, T paged tail, M recurrent state.
"""

from kvledger.kinds import Form, Kind
from kvledger.layout import GroupSpec, Layout
from support.world import group, layout

__all__ = ["HYBRID", "compressed", "golden", "indexer", "pick", "recurrent", "tail", "window"]

HYBRID = "CXST"
"""Groups of a model that keeps four kinds, in the usual order."""


def compressed(name: str = "C", block: int = 256, per_row: int = 4, **fields) -> GroupSpec:
    """Rows that stand for `per_row` tokens; one page is one block."""
    return group(name, Kind.COMPRESSED_KV, tokens_per_row=per_row, rows_per_page=block // per_row, **fields)


def indexer(name: str = "X", block: int = 256, per_row: int = 4, to: str = "C", **fields) -> GroupSpec:
    """Keys of the rows of group `to`."""
    kind, rows = Kind.INDEXER_STATE, block // per_row
    return group(name, kind, tokens_per_row=per_row, rows_per_page=rows, coupled_to=to, **fields)


def window(name: str = "S", page: int = 64, span: int = 128, **fields) -> GroupSpec:
    """A sliding window of `span` tokens in pages of `page`."""
    return group(name, Kind.SWA_WINDOW, Form.PAGED_WINDOW, rows_per_page=page, window=span, **fields)


def tail(name: str = "T", page: int = 4, span: int = 8, **fields) -> GroupSpec:
    """A compressor's state as engines page it."""
    return group(name, Kind.UNCOMPRESSED_TAIL, Form.PAGED_WINDOW, rows_per_page=page, window=span, **fields)


def recurrent(name: str = "M", **fields) -> GroupSpec:
    """A state that is true at exactly one boundary."""
    return group(name, Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT, **fields)


def pick(letters: str, *, block: int = 256, **fields) -> Layout:
    """A layout of the groups that the letters name, in their order."""
    made = {"C": compressed(block=block), "X": indexer(block=block), "S": window(), "T": tail(), "M": recurrent()}
    return layout(*(made[letter] for letter in letters), block_tokens=block, **fields)


def golden() -> Layout:
    """Rows of 256-token blocks, and windows with pages of 64, 64, 4 and 8 tokens."""
    return layout(
        compressed("rows"),
        window("a64", 64, 128),
        window("b64", 64, 128),
        tail("t4", 4, 8),
        tail("t8", 8, 128),
    )
