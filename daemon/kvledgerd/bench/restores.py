"""Restoring a boundary from disk, beside reading the same file directly into memory and looking at nothing."""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kvledger import Cache, Kind, RegisteredLayout
from kvledger.testing import Daemon
from kvledger.wire.replies import Restored
from kvledgerd.bench.contents import check_hit, put_all, require
from kvledgerd.bench.figures import Goal, Measured, Sense
from kvledgerd.bench.layouts import MIB, megabyte_blocks
from kvledgerd.bench.rounds import in_turns, speeds, timed
from kvledgerd.bench.scale import Scale

__all__ = ["restore"]

_GIB: Final = 1 << 30
_PIECE_BYTES: Final = 4 * MIB


class _Restorer:
    """One prompt on disk, whose memory copies are dropped before each measurement."""

    def __init__(self, cache: Cache, layout: RegisteredLayout, tokens: range) -> None:
        self._cache: Final = cache
        self._layout: Final = layout
        self._tokens: Final = tokens
        with cache.reserve(layout, tokens, boundary=len(tokens)) as unit:
            put_all(unit)
        cache.offload(layout, tokens, drop_memory=True)

    def seconds(self) -> float:
        """Return how long it takes until all of it is in memory and verified."""
        for kind in (Kind.COMPRESSED_KV, Kind.INDEXER_STATE):
            self._cache.evict(self._layout, self._tokens, kind=kind)
        return timed(self._restore)

    def check(self) -> None:
        """Make sure that the bytes are those that were put."""
        check_hit(self._cache, self._layout, [*self._tokens, 1], len(self._tokens))

    def _restore(self) -> None:
        answer = self._cache.restore(self._layout, self._tokens)
        require(isinstance(answer, Restored), f"the boundary is restored, got {answer!r}")


@contextmanager
def _direct(path: Path) -> Iterator[int]:
    """Open a file for direct reads, or for plain ones where the file system takes no others."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def restore(scale: Scale) -> Iterator[Measured]:
    """From disk to verified slots."""
    size = scale.restore_bytes
    daemon = Daemon(memory=f"{2 * size // MIB + 32}MiB", keeper=False, settings={"arena_bytes": "8MiB"})
    with daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(megabyte_blocks())
        restorer = _Restorer(cache, layout, range(size // MIB * layout.layout.block_tokens))
        (segment,) = [path for path in (daemon.data_dir / "data").iterdir() if path.stat().st_size >= size]
        target = mmap.mmap(-1, size)
        pieces = [memoryview(target)[at : at + _PIECE_BYTES] for at in range(0, size, _PIECE_BYTES)]
        with _direct(segment) as fd:

            def bare() -> None:
                for number, piece in enumerate(pieces):
                    os.preadv(fd, [piece], number * _PIECE_BYTES)

            pairs = in_turns(restorer.seconds, lambda: timed(bare), scale.rounds)
        restorer.check()
        name = f"restore {size // MIB} MiB from disk"
        yield Measured(
            name, "GiB/s", "direct read of the same file", Goal(Sense.AT_LEAST, 0.85), speeds(pairs, size / _GIB)
        )
