"""LMCache's server on a CPU, with one engine that stores and one that reads.

What it holds ends with it, so what comes back after SIGKILL is another server, whose adapter has written everything to
files before: storing is not measured beside the writing.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import msgspec

from kvledgerd.bench.contents import require
from kvledgerd.bench.peers.lmcache_engine import CHUNK_BYTES, CHUNK_TOKENS, MODE, Engine
from kvledgerd.bench.peers.processes import Server, free_port
from kvledgerd.bench.peers.system import UNITS, Peer, System, Work

__all__ = ["LMCACHE"]

_FIRST_SEED: Final = 100_000
_UNITS_EVER: Final = 4 * UNITS
_WATERMARK: Final = 0.8
_OPTIONS: Final = {
    "host": "127.0.0.1",
    "chunk-size": str(CHUNK_TOKENS),
    "eviction-policy": "LRU",
    "supported-transfer-mode": MODE,
    "null-block-id": "-1",  # block 0 is one like any other here
}
_QUIET: Final = {"LMCACHE_LOG_LEVEL": "ERROR", "LMCACHE_TRACK_USAGE": "false"}


class _Running:
    """A server with two engines, one that stores and one that reads.

    Args:
        life: Ends it.
        folder: For what the server says.
        work: What is stored.
        files: Folder to which the server writes everything, None if it has only its memory.
    """

    def __init__(self, life: ExitStack, folder: Path, work: Work, files: Path | None) -> None:
        self._life: Final = life
        chunks, port = len(work.unit) // CHUNK_BYTES, free_port()
        # Room for all that is ever stored: where it is short, the server makes some once a second and stores nothing
        # meanwhile.
        capacity = (_UNITS_EVER * len(work.unit) + work.blocks * CHUNK_BYTES) / _WATERMARK
        options = {"port": str(port), "l1-size-gb": str(capacity / (1 << 30))}
        if files is not None:
            options["l2-adapter"] = msgspec.json.encode({"type": "fs", "base_path": str(files)}).decode()
        words = [word for name, value in (_OPTIONS | options).items() for word in (f"--{name}", value)]
        command = [sys.executable, "-m", "lmcache.v1.multiprocess.server", "--disable-observability", *words]
        self.server: Final = Server(self._life, command, folder / "output")
        self.storing: Final = self._engine(port, chunks)
        self.reading: Final = self._engine(port, chunks)
        self.storing.memory[:] = work.unit

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._life.close()

    def _engine(self, port: int, chunks: int) -> Engine:
        engine = Engine(self.server, f"tcp://127.0.0.1:{port}", chunks)
        self._life.callback(engine.close)
        return engine


class _LMCache:
    """The server in memory, and the one with files once a restart is asked for.

    Args:
        work: What is stored and looked up.
        folder: For all that they write.
        life: Ends what runs.
    """

    def __init__(self, work: Work, folder: Path, life: ExitStack) -> None:
        self._work: Final = work
        self._folder: Final = folder
        self._files: Final = folder / "files"
        self._life: Final = life
        self._kept: _Running | None = None
        self._seeds: Final = count(_FIRST_SEED)
        self._unit_tokens: Final = len(work.unit) // CHUNK_BYTES * CHUNK_TOKENS
        self._prompt: tuple[int, ...] = ()
        self._looked_up: Final = tuple(range(work.blocks * CHUNK_TOKENS))
        self._running: Final = self._start()

    def fill(self) -> None:
        """Touch all of the memory, then store the units and the prompt that is looked up."""
        for _ in range(_UNITS_EVER):
            self.put()
        self._running.storing.clear()
        for _ in range(UNITS):
            self.put()
        for start in range(0, len(self._looked_up), self._unit_tokens):
            self._running.storing.store(self._looked_up, start)

    def put(self) -> None:
        self._prompt = (next(self._seeds), *range(1, self._unit_tokens))
        self._running.storing.store(self._prompt)

    def get(self) -> memoryview:
        self._running.reading.retrieve(self._prompt)
        return self._running.reading.memory

    def exists(self) -> int:
        return self._running.reading.exists(self._looked_up)

    def restart(self) -> float:
        running = self._kept or self._keep()
        begin = perf_counter()
        running.kill()
        self._kept = running = self._start(self._files)
        running.reading.retrieve(tuple(range(CHUNK_TOKENS)))
        seconds = perf_counter() - begin
        half = len(self._work.unit) // 2  # keys of all chunks, then their values
        for at in (0, half):
            end = at + CHUNK_BYTES // 2
            require(running.reading.memory[at:end] == self._work.unit[at:end], "a chunk from before SIGKILL")
        return seconds

    def _keep(self) -> _Running:
        """Return a server whose files hold all units."""
        running = self._start(self._files)
        for seed in range(UNITS):
            running.storing.store((seed, *range(1, self._unit_tokens)))
        while sum(1 for _ in self._files.glob("*.data")) < UNITS * self._unit_tokens // CHUNK_TOKENS:
            running.server.pause()
        return running

    def _start(self, files: Path | None = None) -> _Running:
        life = ExitStack()
        self._life.callback(life.close)
        return _Running(life, self._folder, self._work, files)


@contextmanager
def _run(work: Work) -> Iterator[tuple[System, str]]:
    os.environ.update(_QUIET)
    with TemporaryDirectory(prefix="kvl-lmcache-") as folder, ExitStack() as life:
        system = _LMCache(work, Path(folder), life)
        system.fill()
        yield system, f"LMCache {version('lmcache')}, its server on the CPU, {MODE}; files for the restart"


def _lacks() -> str:
    missing = [name for name in ("lmcache", "torch", "zmq") if find_spec(name) is None]
    return f"pip install lmcache ({', '.join(missing)} not found)" if missing else ""


LMCACHE: Final = Peer("LMCache", _lacks, _run, exists_bound=0.02)
"""The design asks that a look-up is fifty times faster than here."""
