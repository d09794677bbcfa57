"""A rank of an engine in a process of its own: it brings its part of units, and reads its part of hits.

It is told what to do in lines of JSON on its standard input and answers each with one line. `RankProcess` is the
scheduler's end of that channel.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from kvledger import Cache, Form, GroupSpec, KernelABI, Kind, Layout, UnitShard
from kvledger.errors import KVLedgerError

__all__ = ["RankProcess", "content", "ranks_layout"]

TESTS = Path(__file__).resolve().parent.parent


def ranks_layout() -> Layout:
    """Two pipeline stages of two tensor ranks: rows and windows in the first, rows and a state in the second."""
    page = {"rows_per_page": 16, "row_bytes": 256, "page_bytes": 4096}
    first, second = {"layers": (0, 1), "shards": 2}, {"layers": (2, 3), "shards": 2, "first_rank": 2}
    groups = (
        GroupSpec(name="full.0", kind=Kind.COMPRESSED_KV, form=Form.ROWS, **page, **first),
        GroupSpec(name="swa.0", kind=Kind.SWA_WINDOW, form=Form.PAGED_WINDOW, window=32, **page, **first),
        GroupSpec(name="full.1", kind=Kind.COMPRESSED_KV, form=Form.ROWS, **page, **second),
        GroupSpec(name="gdn.1", kind=Kind.UNCOMPRESSED_TAIL, form=Form.SNAPSHOT, page_bytes=4096, **second),
    )
    abi = {spec.name: KernelABI(name="test") for spec in groups}
    return Layout(
        model="ranks", weights_digest="w", ranks="tp2pp2", block_tokens=16, groups=groups, abi=abi, revision="1"
    )


def content(group: str, shard: int, first_token: int, length: int) -> bytes:
    """Return the bytes by which an object is recognised."""
    mark = f"{group}/{shard}/{first_token};".encode()
    return (mark * (length // len(mark) + 1))[:length]


def fill(part: UnitShard, count: int) -> None:
    """Put the first objects of a part, as many as `count`."""
    for slot in part.objects[:count]:
        part.put(slot, content(slot.group, slot.shard, slot.first_token, slot.length))


def main(socket: str, engine: str, rank: int) -> None:
    """Do what the lines on standard input say."""
    with Cache.open(socket, engine=bytes.fromhex(engine), name=f"rank {rank}", staging_bytes=1 << 20) as cache:
        cache.register(ranks_layout())
        for line in sys.stdin:
            what, data = json.loads(line)
            sys.stdout.write(json.dumps(_answer(cache, what, bytes.fromhex(data), rank)) + "\n")
            sys.stdout.flush()


def _answer(cache: Cache, what: str, data: bytes, rank: int) -> list[str | int]:
    try:
        return {"write": _write, "stall": _stall, "read": _read}[what](cache, data, rank)
    except KVLedgerError as error:
        return [type(error).__name__, str(error)]


def _write(cache: Cache, ticket: bytes, _: int) -> list[str | int]:
    with cache.join(ticket) as part:
        fill(part, len(part.objects))
    return [type(part.committed).__name__, len(part.objects)]


def _stall(cache: Cache, ticket: bytes, _: int) -> list[str | int]:
    part = cache.join(ticket)
    fill(part, 1)
    _STALLED.append(part)
    return ["Stalled", len(part.objects)]


_STALLED: list[UnitShard] = []


def _read(cache: Cache, hit: bytes, rank: int) -> list[str | int]:
    with cache.attach(hit) as attached:
        handles = list(attached.of_rank(rank))
        right = [bytes(h.buffer) == content(h.group, h.shard, h.first_token, h.length) for h in handles]
    return ["Read" if all(right) else "Wrong", len(right)]


class RankProcess:
    """A rank, as its scheduler sees it.

    Args:
        socket: The daemon's socket.
        engine: The engine's id.
        rank: Its number.
    """

    def __init__(self, socket: Path, engine: bytes, rank: int) -> None:
        command = [sys.executable, "-m", "support.ranks", str(socket), engine.hex(), str(rank)]
        environment = os.environ | {"PYTHONPATH": str(TESTS)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, **pipes)

    def tell(self, what: str, data: bytes) -> None:
        """Say what to do."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([what, data.hex()]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> tuple[str, int | str]:
        """Wait for what came of it."""
        assert self.process.stdout is not None
        word, more = json.loads(self.process.stdout.readline())
        return word, more

    def kill(self) -> None:
        """SIGKILL it and wait until it is gone."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        """End it, if it has not ended, and wait."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait(60)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
