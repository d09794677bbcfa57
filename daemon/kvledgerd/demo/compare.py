"""Whether two runs are equal: tokens, logits and states, bit for bit, without torch."""

import struct

from kvledgerd.demo.messages import Ran

__all__ = ["max_abs_difference", "same_end", "same_states"]


def same_end(ran: Ran, cold: Ran) -> bool:
    """Tell whether a run came to the tokens, the logits and the states of a cold run that was cut where it was."""
    return ran.tokens == cold.tokens and ran.logits == cold.logits and same_states(ran, cold)


def same_states(ran: Ran, cold: Ran) -> bool:
    """Tell whether every state that a run had is that of a cold run at the same boundary."""
    return bool(ran.states) and all(cold.states.get(at) == digest for at, digest in ran.states.items())


def max_abs_difference(one: bytes, other: bytes) -> float:
    """Return the greatest difference of two lists of logits, float32 little-endian.

    Raises:
        ValueError: they are not of one length.
    """
    return max(abs(a - b) for a, b in zip(_floats(one), _floats(other), strict=True))


def _floats(raw: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(raw) // 4}f", raw)
