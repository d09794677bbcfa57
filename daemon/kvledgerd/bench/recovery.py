"""Rows about many objects: how long a start takes to know them again, and what they take in memory.

There are no snapshots yet, so a start replays the whole log: reads it, checks sums and chain, decodes every event and
applies it. Beside it stands what msgspec alone needs to decode the same events from memory.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from kvledger_storage.events import Logged
from kvledger_storage.log import EventLog
from kvledgerd.bench.contents import require
from kvledgerd.bench.figures import Goal, Measured, Pair, Sense
from kvledgerd.bench.layouts import five_groups
from kvledgerd.bench.memory_probe import Probed
from kvledgerd.bench.offline_core import CAPLESS, OfflineCore
from kvledgerd.bench.rounds import in_turns, timed
from kvledgerd.bench.scale import Scale
from kvledgerd.core.state import State
from kvledgerd.recovery import replay

__all__ = ["recover"]

_BLOCK_TOKENS: Final = 128
_BLOCKS: Final = 128

# An object's handle as the core keeps it (arena, offset, generation, length: 8 bytes each; fingerprint: 16), and its
# key: layout, group, shard and page (8 bytes together), and the chain hash that all objects of one block share.
_HANDLE_BYTES: Final = 48
_NAME_BYTES: Final = 8
_HASH_BYTES: Final = 32


def recover(scale: Scale) -> Iterator[Measured]:
    """A log of many objects, replayed."""
    with _log_of(scale.objects) as (directory, events, objects):
        packed = msgspec.msgpack.encode([msgspec.Raw(event) for event in events])
        decoder = msgspec.msgpack.Decoder(list[Logged])
        pairs = in_turns(
            lambda: _replay(directory, objects), lambda: timed(lambda: decoder.decode(packed)), scale.rounds
        )
        name, peer = f"recover {objects:,} objects", "msgspec decode of the same events"
        yield Measured(name, "s", peer, Goal(Sense.AT_MOST, 5.0), pairs)
        probes = [_probe(directory) for _ in range(min(scale.rounds, 5))]
        require(all(probe.objects == objects for probe in probes), f"{objects} objects after each replay")
        per_object = [Pair(probe.bytes / objects, _packed_bytes(probe) / objects) for probe in probes]
        name, peer = f"memory for {objects:,} objects", "packed handles and keys"
        yield Measured(name, "bytes an object", peer, Goal(Sense.AT_MOST, 6.0), per_object)


@contextmanager
def _log_of(objects: int) -> Iterator[tuple[Path, list[bytes], int]]:
    """Yield a log with at least so many objects, its events, and how many objects there are."""
    core, seed = OfflineCore(five_groups(_BLOCK_TOKENS)), 0
    while core.state.objects < objects:
        blocks = min(_BLOCKS, -(-objects // 5))
        core.commit([seed, *range(1, blocks * _BLOCK_TOKENS)])
        seed += 1
    with tempfile.TemporaryDirectory(prefix="kvl-") as name:
        directory = Path(name, "log")
        with EventLog.open(directory) as log:
            _write(log, core.events)
        yield directory, [event for events in core.events for event in events], core.state.objects


def _write(log: EventLog, decisions: list[list[bytes]]) -> None:
    """Write the events; closing the log raises if one of them could not be written."""
    writer = log.writer(1, lambda _: None, lambda _: None, lambda _: None)
    for events in decisions:
        writer.submit(events, durable=False)


def _replay(directory: Path, objects: int) -> float:
    state = State(CAPLESS)
    begin = time.perf_counter()
    with EventLog.open(directory) as log:
        replay(log, state, lambda _: None)
    seconds = time.perf_counter() - begin
    require(state.objects == objects, f"{objects} objects after the replay, not {state.objects}")
    return seconds


def _probe(directory: Path) -> Probed:
    command = [sys.executable, "-m", "kvledgerd.bench.memory_probe", str(directory)]
    done = subprocess.run(command, capture_output=True, check=True)  # noqa: S603  a list that is made here
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Probed)


def _packed_bytes(probe: Probed) -> int:
    return probe.objects * (_HANDLE_BYTES + _NAME_BYTES) + probe.blocks * _HASH_BYTES
