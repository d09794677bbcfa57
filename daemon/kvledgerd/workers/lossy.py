"""What workers do to objects of the lossy tier: quantise them for their record, and bring them back. It blocks.

On a CPU this is done by the thread that reads or writes the record, with numpy, so that objects of different kinds are
worked on side by side. Where a GPU is configured the tensor worker does it; should that fail, the same bytes are made
here: a kernel equals its reference.
"""

from typing import Final

import structlog

from kvledger.errors import ServiceError
from kvledger_storage.disk.pages import new_bytes
from kvledgerd.core.decision import Quantised
from kvledgerd.memory.arenas import ArenaTable
from kvledgerd.tensors.payloads import dequantise_into, quantised
from kvledgerd.tensors.slot_messages import DequantiseSlot, QuantiseSlot
from kvledgerd.tensors.worker import TensorWorker

__all__ = ["Lossy"]

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
                found = new_bytes(how.length)
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
