"""Payloads of quantised records: made of an object's bytes, and made into these again, with numpy or on a GPU.

An object is read where it lies, page by page: each begins with numbers of 16 bits, and what stands behind them is not
kept. So the record holds the codes of all pages and then their scales.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvledger_storage.disk.pages import new_bytes
from kvledgerd.core.copies.precisions import Precision
from kvledgerd.core.decision import Quantised

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kvledger_kernels.quantise import Code

    Quantise = Callable[[NDArray[np.uint16], Code], NDArray[np.uint8]]
    Dequantise = Callable[[NDArray[np.uint8], int, Code], NDArray[np.uint16]]

__all__ = ["dequantise_into", "quantised"]


def quantised(source: memoryview, how: Quantised, quantise: "Quantise | None" = None) -> memoryview:
    """Return the payload of a record: `how.length` bytes.

    Args:
        source: The object, whole pages of `how.page_bytes`.
        how: What becomes of it.
        quantise: Does the arithmetic; the reference if None.
    """
    import numpy as np  # noqa: PLC0415 - a daemon without a lossy tier needs neither of them

    from kvledger_kernels.quantise import quantise_reference  # noqa: PLC0415 - as above

    pages = np.frombuffer(source, dtype=np.uint16).reshape(-1, how.page_bytes // 2)
    values = np.ascontiguousarray(pages[:, : how.page_values]).reshape(-1)
    record = new_bytes(how.length)
    np.frombuffer(record, dtype=np.uint8)[:] = (quantise or quantise_reference)(values, _code(how))
    return record


def dequantise_into(
    record: memoryview, target: memoryview, how: Quantised, dequantise: "Dequantise | None" = None
) -> None:
    """Write the object of a record; what was not kept of it becomes zeros.

    Args:
        record: The payload, verified.
        target: The object's slot, whole pages of `how.page_bytes`; all of it is written.
        how: What had become of it.
        dequantise: Does the arithmetic; the reference if None.
    """
    import numpy as np  # noqa: PLC0415 - as above

    from kvledger_kernels.dequantise import dequantise_reference  # noqa: PLC0415 - as above

    pages = np.frombuffer(target, dtype=np.uint16).reshape(-1, how.page_bytes // 2)
    count = len(pages) * how.page_values
    values = (dequantise or dequantise_reference)(np.frombuffer(record, dtype=np.uint8), count, _code(how))
    pages[:, : how.page_values] = values.reshape(len(pages), -1)
    pages[:, how.page_values :] = 0


def _code(how: Quantised) -> "Code":
    from kvledger_kernels.quantise import Code  # noqa: PLC0415 - as above

    return Code.E4M3 if how.precision == Precision.E4M3 else Code.INT8
