"""What the tensor process does to objects of the lossy tier: the arithmetic between an object and its record."""

from collections.abc import Mapping

from kvledger_storage.arena import Arena
from kvledgerd.tensors.devices import Device
from kvledgerd.tensors.payloads import dequantise_into, quantised
from kvledgerd.tensors.slot_messages import DequantisedSlot, DequantiseSlot, QuantisedSlot, QuantiseSlot

__all__ = ["dequantise", "quantise"]


def quantise(effect: QuantiseSlot, arenas: Mapping[int, Arena], device: Device) -> QuantisedSlot:
    """Return the payload of an object's record; blocks."""
    source = arenas[effect.arena].view(effect.offset, effect.length)
    return QuantisedSlot(bytes(quantised(source, effect.how, device.quantise)))


def dequantise(effect: DequantiseSlot, arenas: Mapping[int, Arena], device: Device) -> DequantisedSlot:
    """Write the object of a record into its slot; blocks."""
    target = arenas[effect.arena].view(effect.offset, effect.length)
    dequantise_into(memoryview(effect.record), target, effect.how, device.dequantise)
    return DequantisedSlot()
