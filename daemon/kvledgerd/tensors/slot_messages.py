"""What threads of the shell ask of the tensor process for the lossy tier, and what it answers."""

import msgspec

from kvledgerd.core.decision import Quantised

__all__ = ["DequantiseSlot", "DequantisedSlot", "QuantiseSlot", "QuantisedSlot"]


class QuantiseSlot(msgspec.Struct, frozen=True):
    """Quantise an object for its record; answered by `QuantisedSlot`."""

    arena: int
    offset: int
    length: int
    how: Quantised


class QuantisedSlot(msgspec.Struct, frozen=True):
    """The payload of the record."""

    record: bytes


class DequantiseSlot(msgspec.Struct, frozen=True):
    """Write the object of a record into its slot; answered by `DequantisedSlot`."""

    arena: int
    offset: int
    length: int
    how: Quantised
    record: bytes


class DequantisedSlot(msgspec.Struct, frozen=True):
    """The object lies in its slot."""
