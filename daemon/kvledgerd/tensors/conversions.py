"""What the tensor process does to objects of another layout: bring them into the page format that is asked for.

A source is copied before it is converted, and its fingerprint is that of the copy: so whatever happens to its memory
meanwhile, the object that is made holds the committed bytes or is not made. Fingerprints are those of host bytes:
before a GPU has seen them, and after it gave them back.
"""

from collections.abc import Mapping

import numpy as np
import xxhash

from kvledger.errors import ServiceError
from kvledger_kernels.relayout import Conversion
from kvledger_storage.arena import Arena
from kvledger_storage.copying import hash_slot
from kvledgerd.core.commands import Converted
from kvledgerd.core.decision import ConvertObject, ConvertSlots
from kvledgerd.tensors.devices import Device

__all__ = ["convert"]


def convert(effect: ConvertSlots, arenas: Mapping[int, Arena], device: Device) -> Converted:
    """Convert all objects of an effect and hash what they became; blocks.

    Raises:
        ServiceError: A source does not hold the bytes that were committed.
    """
    return Converted(effect.job, tuple((one.index, _convert(one, arenas, device)) for one in effect.objects))


def _convert(one: ConvertObject, arenas: Mapping[int, Arena], device: Device) -> bytes:
    copied = bytearray(arenas[one.arena].view(one.offset, one.length))
    if xxhash.xxh3_128_digest(copied) != one.fingerprint:
        raise ServiceError(
            "the object to be converted does not hold the committed bytes",
            field="at",
            remedy="compute it; kvledger check --socket tells what is damaged",
        )
    arena = arenas[one.target_arena]
    source = np.frombuffer(copied, dtype=np.uint8)
    target = np.frombuffer(arena.view(one.target_offset, one.target_length), dtype=np.uint8)
    if one.formats is None:
        target[:] = source
    else:
        device.relayout(Conversion(*one.formats, layers=one.layers, rows=one.rows), source, target)
    return hash_slot(arena, one.target_offset, one.target_length)
