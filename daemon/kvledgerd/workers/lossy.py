"""What workers do to objects of the lossy tier: quantise them for their record, and bring them back. It blocks.

An object is read where it lies, page by page: each begins with numbers of 16 bits, and what stands behind them is not
kept. So the record holds the codes of all pages and then their scales. On a CPU this is done by the thread that reads
or writes the record, with numpy, so that objects of different kinds are worked on side by side. Where a GPU is
configured the tensor worker does it; should that fail, the same bytes are made here: a kernel equals its reference.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from kvledger.errors import ServiceError
from kvledger_storage.disk.pages import PAGE, new_pages
from kvledgerd.core.copies.precisions import Precision
from kvledgerd.core.decision import Quantised
from kvledgerd.tensors.jobs import DequantiseSlot, QuantiseSlot
from kvledgerd.tensors.worker import TensorWorker
from kvledgerd.workers.memory import ArenaTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kvledger_kernels.quantise import Code

    Quantise = Callable[[NDArray[np.uint16], Code], NDArray[np.uint8]]
    Dequantise = Callable[[NDArray[np.uint8], int, Code], NDArray[np.uint16]]

__all__ = ["Lossy", "dequantise_into", "new_record", "quantised"]

_log = structlog.get_logger(__name__)


class Lossy:
    """Objects of arenas to records and back; any thread may call it.

    Args:
        arenas: Where the objects lie.
        tensors: Does it if there is one.
    """

    def __init__(self, arenas: ArenaTable, tensors: TensorWorker | None) -> None:
        self._arenas: Final = arenas
        self._tensors: Final = tensors

    def quantised(self, slot: tuple[int, int, int], how: Quantised) -> memoryview:
        """Return the payload of the record of an object, given as arena, offset and length."""
        arena, offset, length = slot
        if self._tensors is not None:
            try:
                found = new_record(how)
                found[:] = self._tensors.run(QuantiseSlot(arena, offset, length, how)).record
            except ServiceError as error:
                _log.warning("quantised on the CPU", why=error.message)
            else:
                return found
        return quantised(self._arenas[arena].view(offset, length), how)

    def dequantise_into(self, record: memoryview, slot: tuple[int, int, int], how: Quantised) -> None:
        """Write the object of a record into its slot, given as arena, offset and length."""
        arena, offset, length = slot
        if self._tensors is not None:
            try:
                self._tensors.run(DequantiseSlot(arena, offset, length, how, bytes(record)))
            except ServiceError as error:
                _log.warning("dequantised on the CPU", why=error.message)
            else:
                return
        dequantise_into(record, self._arenas[arena].view(offset, length), how)


def new_record(how: Quantised) -> memoryview:
    """Return memory for a record, on whole pages so that it can be read and written with direct I/O."""
    return new_pages(-(-how.length // PAGE))[: how.length]


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
    record = new_record(how)
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
