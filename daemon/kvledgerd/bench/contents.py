"""Bytes that anybody can work out, so that no wrong answer is ever timed."""

from collections.abc import Sequence

from kvledger import Cache, Handle, Unit
from kvledger.registered import RegisteredLayout
from kvledger.unit_view import UnitSlot

__all__ = ["WrongAnswerError", "check_hit", "content", "put_all", "require"]


class WrongAnswerError(Exception):
    """The cache gave an answer that it must not give, so there is nothing to measure."""


def require(condition: object, what: str) -> None:
    """Raise WrongAnswerError unless a condition holds."""
    if not condition:
        raise WrongAnswerError(f"not so: {what}")


def content(thing: UnitSlot | Handle) -> bytes:
    """Return the bytes of an object: group and place decide them."""
    label = f"{thing.group}/{thing.shard} at {thing.first_token}; ".encode()
    return (label * (thing.length // len(label) + 1))[: thing.length]


def put_all(unit: Unit) -> None:
    """Fill everything that a unit brings."""
    for slot in unit.objects:
        if not slot.present:
            unit.put(slot, content(slot))


def check_hit(cache: Cache, layout: RegisteredLayout, prompt: Sequence[int], boundary: int) -> None:
    """Make sure that a prompt can be resumed at its boundary, with exactly the bytes that were put.

    Raises:
        WrongAnswerError: It can not.
    """
    with cache.acquire(layout, prompt) as hit:
        require(hit.tokens == boundary, f"a hit of {boundary} tokens, got: {hit.why}")
        for handle in hit:
            require(handle.buffer == content(handle), f"the bytes of {handle!r} are those that were put")
