"""In which precision a record keeps its object: the committed bytes, or fewer bytes that tell them approximately.

The *lossy tier*: an operator names the kinds whose objects are quantised on their way to disk (`disk_precision`), and
an object is if its layout allows approximations and declares numbers of 16 bits that mean something alone. Bytes that
an engine stores in fp8 or fp4 already are copied, and so is everything that nobody declared.

What is read back from such a record is an approximation for good. So is what was computed over one, and it keeps that
when it goes to disk once more, as it is (`APPROX`) or quantised. A verdict offers it to callers that accept it, and to
nobody else.
"""

import enum
from typing import Final

from kvledger.kinds import Form
from kvledger.layout import GroupSpec, Layout

__all__ = ["GROUP", "QUANTISED", "Precision", "page_values", "precision_names"]

GROUP: Final = 64
"""Numbers that share a scale; in whole groups, so that no layer's and no page's numbers scale those of the next."""
_DTYPE: Final = "bfloat16"
_BYTES: Final = 2


class Precision(enum.IntEnum):
    """What a record's payload is to the object."""

    EXACT = 0
    """The committed bytes."""
    APPROX = 1
    """All bytes of an object that was an approximation when it was written."""
    E4M3 = 2
    """Numbers of 8 bits with an exponent, and a scale for each 64."""
    INT8 = 3
    """Integers of 8 bits, and a scale for each 64."""


QUANTISED: Final = frozenset({Precision.E4M3, Precision.INT8})


def precision_names() -> dict[str, Precision]:
    """Return the precisions that an operator may choose, by the words of `disk_precision`."""
    return {precision.name.lower(): precision for precision in (Precision.EXACT, *sorted(QUANTISED))}


def page_values(layout: Layout, spec: GroupSpec) -> int:
    """Return how many numbers a page of a group has that may be quantised; 0 if none may.

    Padding behind the rows is nobody's and holds anything, so it is left out and read back as zeros. A snapshot without
    rows is a recurrent state, in which errors would add up.
    """
    if (
        not layout.allow_approx
        or layout.strict_provenance
        or spec.dtype != _DTYPE
        or not spec.row_bytes
        or spec.page_bytes % 2
    ):
        return 0
    size = spec.page_bytes if spec.form is Form.SNAPSHOT else spec.rows_per_page * spec.row_bytes
    return size // _BYTES if size % (GROUP * _BYTES) == 0 else 0
