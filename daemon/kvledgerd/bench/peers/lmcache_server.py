"""LMCache's server on a CPU, as an engine of one layer uses it, in chunks of 128 tokens.

The server copies between its memory and the engine's, which both have mapped, once in each direction; of its ways
without a GPU that is the fastest. What it holds ends with it, so what comes back after SIGKILL is another server, whose
adapter has written everything to files before: storing is not measured beside the writing.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter, sleep
from typing import Any, Final

import msgspec

from kvledgerd.bench.contents import require
from kvledgerd.bench.peers.processes import Server, free_port
from kvledgerd.bench.peers.system import UNITS, Peer, System, Work

__all__ = ["LMCACHE"]

_CHUNK_TOKENS: Final = 128
_SHAPE: Final = (_CHUNK_TOKENS, 8, 128)
"""Keys of a chunk, or its values: tokens, heads, numbers of two bytes."""
_CHUNK_BYTES: Final = 2 * _CHUNK_TOKENS * 8 * 128 * 2
_SECONDS: Final = 60
_MODEL: Final = "bench"
_MODE: Final = "lmcache_driven"
_FIRST_SEED: Final = 100_000
_UNITS_EVER: Final = 4 * UNITS
_WATERMARK: Final = 0.8
_PAUSE: Final = 0.005
_OPTIONS: Final = {
    "host": "127.0.0.1",
    "chunk-size": str(_CHUNK_TOKENS),
    "eviction-policy": "LRU",
    "supported-transfer-mode": _MODE,
    "null-block-id": "-1",  # block 0 is one like any other here
}
_QUIET: Final = {"LMCACHE_LOG_LEVEL": "ERROR", "LMCACHE_TRACK_USAGE": "false"}


class _Engine:
    """A connection, and memory of an engine for one unit.

    Args:
        server: The server.
        url: Where it listens.
        chunks: Chunks of a unit.
    """

    _requests: Final = count(1)

    def __init__(self, server: Server, url: str, chunks: int) -> None:
        import torch  # noqa: PLC0415  no other row needs it

        transport = import_module("lmcache.v1.multiprocess.transport.factory")
        transfers = import_module("lmcache.v1.multiprocess.transfer_context")
        self._key: Final = import_module("lmcache.v1.multiprocess.custom_types").IPCCacheServerKey
        self._blocks: Final = list(range(chunks))
        context = import_module("zmq").Context.instance()
        self._client: Final = transport.RequestClientFactory.create(url, context=context)
        answer = self._client.get_chunk_size()
        while not answer.query():
            server.pause()
        self._pages: Final = {"layer": torch.zeros((2, chunks, *_SHAPE), dtype=torch.bfloat16)}
        instance = {"instance_id": next(self._requests), "req_client": self._client}
        self._transfer: Final = transfers.create_transfer_context(self._pages, mode=_MODE, **instance)
        self._transfer.register(self._pages, _MODEL, 1, 1, _SECONDS, layout_hints={"kv_layout": "NHD"})
        # Only now, since registering moves the pages to where the server has mapped them too.
        moved: Any = self._pages["layer"].view(torch.uint8).numpy()
        self.memory: Final = memoryview(moved).cast("B")

    def store(self, tokens: tuple[int, ...], start: int = 0) -> None:
        """Store what is in the engine's memory as the chunks of a prompt from a token on."""
        name, event = str(next(self._requests)), self._transfer.create_recorded_event()
        end = min(len(tokens), start + len(self._blocks) * _CHUNK_TOKENS)
        key = self._named(tokens, start, end, name, worker=0)
        blocks = self._blocks[: (end - start) // _CHUNK_TOKENS]
        stored = self._transfer.submit_store(name, key, self._pages, [blocks], event, 1).result(timeout=_SECONDS)
        require(stored, "the chunks of a prompt are stored")

    def retrieve(self, tokens: tuple[int, ...]) -> None:
        """Look a prompt up and copy it to the engine's memory."""
        # A store is answered some milliseconds before a look-up finds all of it.
        end = monotonic() + _SECONDS
        while (request := self._look_up(tokens))[1] < len(tokens):
            require(monotonic() < end, f"{len(tokens)} tokens are there, got {request[1]}")
            self._give_back(tokens, *request)
            sleep(_PAUSE)
        name, found = request
        key, event = self._named(tokens, 0, found, name, worker=0), self._transfer.create_recorded_event()
        blocks = self._blocks[: found // _CHUNK_TOKENS]
        copied = self._transfer.submit_retrieve(name, key, self._pages, [blocks], event, 1).result(timeout=_SECONDS)
        require(copied, "the chunks of a prompt are read")
        self._client.end_session(name)

    def exists(self, tokens: tuple[int, ...]) -> int:
        """Look a prompt up, give its chunks back, and return how many there are."""
        name, found = self._look_up(tokens)
        self._give_back(tokens, name, found)
        return found // _CHUNK_TOKENS

    def clear(self) -> None:
        """Empty the server."""
        self._client.clear(force=True).result(timeout=_SECONDS)

    def close(self) -> None:
        """Hang up."""
        self._transfer.close()
        self._client.close()

    def _look_up(self, tokens: tuple[int, ...]) -> tuple[str, int]:
        """Return a name for the request and how many tokens were found and locked."""
        name = str(next(self._requests))
        self._client.lookup(self._named(tokens, 0, len(tokens), name), 1).result(timeout=_SECONDS)
        while (chunks := self._client.query_prefetch_status(name).result(timeout=_SECONDS)) is None:
            pass
        return name, chunks * _CHUNK_TOKENS

    def _give_back(self, tokens: tuple[int, ...], name: str, found: int) -> None:
        self._client.free_lookup_locks(self._named(tokens, 0, found, name), 1)
        self._client.end_session(name)

    def _named(self, tokens: tuple[int, ...], start: int, end: int, name: str, worker: int | None = None) -> Any:
        return self._key(
            model_name=_MODEL,
            world_size=1,
            worker_id=worker,
            token_ids=tokens,
            start=start,
            end=end,
            request_id=name,
            num_kv_readers=1,
        )


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
        chunks, port = len(work.unit) // _CHUNK_BYTES, free_port()
        # Room for all that is ever stored: where it is short, the server makes some once a second and stores nothing
        # meanwhile.
        capacity = (_UNITS_EVER * len(work.unit) + work.blocks * _CHUNK_BYTES) / _WATERMARK
        options = {"port": str(port), "l1-size-gb": str(capacity / (1 << 30))}
        if files is not None:
            options["l2-adapter"] = msgspec.json.encode({"type": "fs", "base_path": str(files)}).decode()
        words = [word for name, value in (_OPTIONS | options).items() for word in (f"--{name}", value)]
        command = [sys.executable, "-m", "lmcache.v1.multiprocess.server", "--disable-observability", *words]
        server = Server(self._life, command, folder / "output")
        self.storing: Final = self._engine(server, port, chunks)
        self.reading: Final = self._engine(server, port, chunks)
        self.storing.memory[:] = work.unit

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._life.close()

    def _engine(self, server: Server, port: int, chunks: int) -> _Engine:
        engine = _Engine(server, f"tcp://127.0.0.1:{port}", chunks)
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
        self._unit_tokens: Final = len(work.unit) // _CHUNK_BYTES * _CHUNK_TOKENS
        self._prompt: tuple[int, ...] = ()
        self._looked_up: Final = tuple(range(work.blocks * _CHUNK_TOKENS))
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
        running.reading.retrieve(tuple(range(_CHUNK_TOKENS)))
        seconds = perf_counter() - begin
        half = len(self._work.unit) // 2  # keys of all chunks, then their values
        for at in (0, half):
            end = at + _CHUNK_BYTES // 2
            require(running.reading.memory[at:end] == self._work.unit[at:end], "a chunk from before SIGKILL")
        return seconds

    def _keep(self) -> _Running:
        """Return a server whose files hold all units."""
        running = self._start(self._files)
        for seed in range(UNITS):
            running.storing.store((seed, *range(1, self._unit_tokens)))
        while sum(1 for _ in self._files.glob("*.data")) < UNITS * self._unit_tokens // _CHUNK_TOKENS:
            sleep(_PAUSE)
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
        yield system, f"LMCache {version('lmcache')}, its server on the CPU, {_MODE}; files for the restart"


def _lacks() -> str:
    missing = [name for name in ("lmcache", "torch", "zmq") if find_spec(name) is None]
    return f"pip install lmcache ({', '.join(missing)} not found)" if missing else ""


LMCACHE: Final = Peer("LMCache", _lacks, _run, exists_bound=0.02)
"""The design asks that a look-up is fifty times faster than here."""
