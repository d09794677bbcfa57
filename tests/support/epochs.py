"""Epochs in tests: one user with something stored, what is said of its weights, and what the log tells."""

from kvledger.epochs import EpochState
from kvledger.kinds import Kind
from kvledger.wire.replies import EpochSet
from kvledger.wire.requests import Epochs, SetEpoch
from kvledger_storage import events
from kvledgerd.core.config import PAGE, CoreConfig
from support.layouts import pick
from support.world import World

__all__ = ["PROMPT", "become", "cut_codes", "prompt", "small", "states", "stored", "told"]

PROMPT = list(range(600))


def become(user, state, weights="w1", **fields) -> EpochSet:
    """Change the weights of the model `test`, which has to be granted."""
    return user.ok(SetEpoch("test", weights, state, **fields))


def states(user) -> dict[str, EpochState]:
    """Weights to their states."""
    return {epoch.weights: epoch.state for epoch in user.ok(Epochs()).epochs}


def stored(what=None, config=None):
    """A user who stored 512 tokens under weights `w1`, and the number of the layout."""
    user = World(config).engine()
    number = user.register(what or pick("CXST"))
    user.store(number, PROMPT, 512)
    return user, number


def cut_codes(answer):
    """Every cut as (layer, code)."""
    return [(cut.layer, cut.code) for cut in answer.cuts]


def told(world, kind):
    """All events of one type, in the order of the log."""
    return [event for raw in world.log if isinstance(event := events.decode(raw).event, kind)]


def small(pages: int) -> CoreConfig:
    """Memory for so many blocks of rows."""
    return CoreConfig(
        memory_bytes=1024 * PAGE,
        arena_bytes=64 * PAGE,
        disk_bytes=1 << 20,
        kind_bytes={Kind.COMPRESSED_KV: pages * PAGE},
    )


def prompt(number: int) -> list[int]:
    """A prompt of one block that shares nothing with the others."""
    return [10_000 * number + t for t in range(256)]
