"""An engine as LMCache's server sees it: one layer, chunks of 128 tokens, memory that both have mapped.

What is called here are the parts that LMCache's own connectors for engines are made of, in their order: look up, store
or retrieve, give back, end the session.
"""

from importlib import import_module
from itertools import count
from time import monotonic, sleep
from typing import Any, Final

from kvledgerd.bench.contents import require
from kvledgerd.bench.peers.processes import Server

__all__ = ["CHUNK_BYTES", "CHUNK_TOKENS", "MODE", "Engine"]

CHUNK_TOKENS: Final = 128
_SHAPE: Final = (CHUNK_TOKENS, 8, 128)
"""Keys of a chunk, or its values: tokens, heads, numbers of two bytes."""
CHUNK_BYTES: Final = 2 * CHUNK_TOKENS * 8 * 128 * 2
MODE: Final = "lmcache_driven"
"""The server copies, once in each direction; of its ways without a GPU that is the fastest."""
_SECONDS: Final = 60
_PAUSE: Final = 0.005
_MODEL: Final = "bench"


class Engine:
    """A connection, and memory of an engine for one unit.

    Args:
        server: The server.
        url: Where it listens.
        chunks: Chunks of a unit.

    Attributes:
        memory: The unit, whose bytes are stored and which is read into: keys of all chunks, then their values.
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
        self._transfer: Final = transfers.create_transfer_context(self._pages, mode=MODE, **instance)
        self._transfer.register(self._pages, _MODEL, 1, 1, _SECONDS, layout_hints={"kv_layout": "NHD"})
        # Only now, since registering moves the pages to where the server has mapped them too.
        moved: Any = self._pages["layer"].view(torch.uint8).numpy()
        self.memory: Final = memoryview(moved).cast("B")

    def store(self, tokens: tuple[int, ...], start: int = 0) -> None:
        """Store what is in the engine's memory as the chunks of a prompt from a token on."""
        name, event = str(next(self._requests)), self._transfer.create_recorded_event()
        end = min(len(tokens), start + len(self._blocks) * CHUNK_TOKENS)
        key = self._named(tokens, start, end, name, worker=0)
        blocks = self._blocks[: (end - start) // CHUNK_TOKENS]
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
        blocks = self._blocks[: found // CHUNK_TOKENS]
        copied = self._transfer.submit_retrieve(name, key, self._pages, [blocks], event, 1).result(timeout=_SECONDS)
        require(copied, "the chunks of a prompt are read")
        self._client.end_session(name)

    def exists(self, tokens: tuple[int, ...]) -> int:
        """Look a prompt up, give its chunks back, and return how many there are."""
        name, found = self._look_up(tokens)
        self._give_back(tokens, name, found)
        return found // CHUNK_TOKENS

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
        return name, chunks * CHUNK_TOKENS

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
