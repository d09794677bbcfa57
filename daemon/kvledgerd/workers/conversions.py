"""What workers do to objects of another layout: bring them into the page format that is asked for. It blocks.

A source is copied before it is converted, and its fingerprint is that of the copy: so whatever happens to its memory
meanwhile, the object that is made holds the committed bytes or is not made. Host memory is converted by the processor,
with numpy, which needs neither torch nor a GPU and lets the interpreter lock go while it copies.
"""

import xxhash

from kvledger.errors import ServiceError
from kvledger_storage.copying import hash_slot
from kvledgerd.core.commands import Converted
from kvledgerd.core.decision import ConvertObject, ConvertSlots
from kvledgerd.workers.memory import ArenaTable

__all__ = ["convert"]


def convert(effect: ConvertSlots, arenas: ArenaTable) -> Converted:
    """Convert all objects of an effect and hash what they became.

    Raises:
        ServiceError: A source does not hold the bytes that were committed.
    """
    return Converted(effect.job, tuple((one.index, _convert(one, arenas)) for one in effect.objects))


def _convert(one: ConvertObject, arenas: ArenaTable) -> bytes:
    import numpy as np  # noqa: PLC0415 - a daemon that converts nothing needs neither of them

    from kvledger_kernels.relayout import Conversion, relayout_reference  # noqa: PLC0415 - as above

    source = bytes(arenas[one.arena].view(one.offset, one.length))
    if xxhash.xxh3_128_digest(source) != one.fingerprint:
        raise ServiceError(
            "the object to be converted does not hold the committed bytes",
            field="at",
            remedy="compute it; kvledger check --socket tells what is damaged",
        )
    arena = arenas[one.target_arena]
    target = arena.view(one.target_offset, one.target_length)
    if one.formats is None:
        target[:] = source
    else:
        conversion = Conversion(*one.formats, layers=one.layers, rows=one.rows)
        relayout_reference(conversion, np.frombuffer(source, dtype=np.uint8), np.frombuffer(target, dtype=np.uint8))
    return hash_slot(arena, one.target_offset, one.target_length)
