"""How large and how long each row is measured."""

from dataclasses import dataclass
from typing import Final

__all__ = ["FULL", "TINY", "Scale"]

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes of one run.

    Attributes:
        rounds: Pairs of measurements of each row.
        calls: Round trips in one measurement of a look-up.
        blocks: Blocks of the prompt of the look-up row.
        prompts: Lengths of the prompts of the growth rows, tokens, ascending.
        read_bytes: Sizes of the objects that are read, ascending.
        commit_bytes: Bytes of a committed unit, a multiple of 1 MiB.
        commit_seconds: How long one measurement commits without pause.
        events: Durable events in one measurement.
        in_flight: Durable events that wait at the same time.
        clients: Connections that look up at the same time.
        crowd_seconds: How long one measurement of them takes.
        objects: Objects that are recovered.
        restore_bytes: Bytes of a unit that is restored, a multiple of 1 MiB.
        trace: File of a request trace, None for no row about one.
    """

    rounds: int
    calls: int
    blocks: int
    prompts: tuple[int, ...]
    read_bytes: tuple[int, ...]
    commit_bytes: int
    commit_seconds: float
    events: int
    in_flight: int
    clients: int
    crowd_seconds: float
    objects: int
    restore_bytes: int
    trace: str | None = None


FULL: Final = Scale(
    rounds=7,
    calls=60,
    blocks=128,
    prompts=(4 << 10, 32 << 10, 256 << 10, 1 << 20),
    read_bytes=(_MIB // 2, 32 * _MIB, 512 * _MIB),
    commit_bytes=32 * _MIB,
    commit_seconds=1.0,
    events=196_608,
    in_flight=256,
    clients=200,
    crowd_seconds=0.7,
    objects=100_000,
    restore_bytes=64 * _MIB,
)

TINY: Final = Scale(
    rounds=1,
    calls=2,
    blocks=4,
    prompts=(512, 1024),
    read_bytes=(4096, 8192),
    commit_bytes=_MIB,
    commit_seconds=0.02,
    events=64,
    in_flight=16,
    clients=3,
    crowd_seconds=0.02,
    objects=500,
    restore_bytes=_MIB,
)
"""So small that every row can be tried in a test; its numbers mean nothing."""
