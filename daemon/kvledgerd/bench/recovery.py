"""Rows about many objects: how long a start takes to know them again, and what they take in memory.

A start goes over the log, whose sums and chain it checks, makes the state that the newest snapshot holds and compares
its digest, then replays what the snapshot lacks. Without a snapshot it replays all events. Beside each stands what
msgspec alone needs to decode the same bytes from memory.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from kvledger_storage.events import Logged
from kvledger_storage.log import EventLog, RealLogIO
from kvledgerd.bench.contents import require
from kvledgerd.bench.figures import Goal, Measured, Pair, Sense
from kvledgerd.bench.layouts import five_groups
from kvledgerd.bench.memory_probe import Probed
from kvledgerd.bench.offline_core import OfflineCore
from kvledgerd.bench.rounds import in_turns, timed
from kvledgerd.bench.scale import Scale
from kvledgerd.core.config import CAPLESS
from kvledgerd.core.state import State
from kvledgerd.life.recovery import replay
from kvledgerd.snapshots.choice import chosen
from kvledgerd.snapshots.make import make_snapshot
from kvledgerd.snapshots.plain import Image, PlainCell, PlainNode

__all__ = ["recover"]

_ROUNDS: Final = 5
"""Each takes a second or two, so there are no more than needed."""
_BLOCK_TOKENS: Final = 128
_BLOCKS: Final = 128

# An object's handle as the core keeps it (arena, offset, generation, length: 8 bytes each; fingerprint: 16), and its
# key: layout, group, shard and page (8 bytes together), and the chain hash that all objects of one block share.
_HANDLE_BYTES: Final = 48
_NAME_BYTES: Final = 8
_HASH_BYTES: Final = 32


def recover(scale: Scale) -> Iterator[Measured]:
    """Many objects, from a snapshot and from the log alone."""
    rounds = min(scale.rounds, _ROUNDS)
    with _data_of(scale.objects) as (data, events, objects):
        snapshot = make_snapshot(data)
        assert snapshot is not None, "there are events that no snapshot holds yet"
        pairs = in_turns(lambda: _start(data, objects), _decoding(Image[PlainNode, PlainCell], snapshot.body), rounds)
        name, peer = f"recover {objects:,} objects", "msgspec decode of the same snapshot"
        yield Measured(name, "s", peer, Goal(Sense.AT_MOST, 5.0), pairs)
        packed = msgspec.msgpack.encode([msgspec.Raw(event) for event in events])
        pairs = in_turns(lambda: _replay(data, objects), _decoding(list[Logged], packed), rounds)
        name, peer = f"replay the log of {objects:,} objects", "msgspec decode of the same events"
        yield Measured(name, "s", peer, None, pairs)
        probes = [_probe(data) for _ in range(rounds)]
        require(all(probe.objects == objects for probe in probes), f"{objects} objects after each replay")
        per_object = [Pair(probe.bytes / objects, _packed_bytes(probe) / objects) for probe in probes]
        name, peer = f"memory for {objects:,} objects", "packed handles and keys"
        yield Measured(name, "bytes an object", peer, Goal(Sense.AT_MOST, 6.0), per_object)


def _decoding(kind: Any, packed: bytes) -> Callable[[], float]:
    decoder = msgspec.msgpack.Decoder(kind)
    return lambda: timed(lambda: decoder.decode(packed))


@contextmanager
def _data_of(objects: int) -> Iterator[tuple[Path, list[bytes], int]]:
    """Yield a data directory whose log has at least so many objects, its events, and how many objects there are."""
    core, seed = OfflineCore(five_groups(_BLOCK_TOKENS)), 0
    while core.state.objects < objects:
        blocks = min(_BLOCKS, -(-objects // 5))
        core.commit([seed, *range(1, blocks * _BLOCK_TOKENS)])
        seed += 1
    count, decisions = core.state.objects, core.events
    del core  # a process that recovers holds one state, not two
    with tempfile.TemporaryDirectory(prefix="kvl-") as name:
        data = Path(name)
        # A snapshot leaves the newest frame to the next one, so the last decision gets a frame of its own.
        for part in (decisions[:-1], decisions[-1:]):
            with EventLog.open(data / "log") as log:
                _write(log, part)
        yield data, [event for events in decisions for event in events], count


def _write(log: EventLog, decisions: list[list[bytes]]) -> None:
    """Write the events; closing the log raises if one of them could not be written."""
    writer = log.writer(1, lambda *_: None, lambda _: None)
    for events in decisions:
        writer.submit([events], durable=False)


def _start(data: Path, objects: int) -> float:
    begin = time.perf_counter()
    with EventLog.open(data / "log") as log:
        end = (log.last_seq, log.recovered_chain)
        found = chosen(RealLogIO(), data, log.log_id, end)
        require(found is not None, "the snapshot is used")
        assert found is not None, "it was just required"
        snapshot, state = found
        replay(log, state, lambda _: None, from_seq=snapshot.seq + 1)
    seconds = time.perf_counter() - begin
    require(state.objects == objects, f"{objects} objects after the start, not {state.objects}")
    return seconds


def _replay(data: Path, objects: int) -> float:
    state = State(CAPLESS)
    begin = time.perf_counter()
    with EventLog.open(data / "log") as log:
        replay(log, state, lambda _: None)
    seconds = time.perf_counter() - begin
    require(state.objects == objects, f"{objects} objects after the replay, not {state.objects}")
    return seconds


def _probe(data: Path) -> Probed:
    command = [sys.executable, "-m", "kvledgerd.bench.memory_probe", str(data / "log")]
    done = subprocess.run(command, capture_output=True, check=True)  # noqa: S603  a list that is made here
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Probed)


def _packed_bytes(probe: Probed) -> int:
    return probe.objects * (_HANDLE_BYTES + _NAME_BYTES) + probe.blocks * _HASH_BYTES
