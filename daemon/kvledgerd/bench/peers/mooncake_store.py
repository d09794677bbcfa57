"""Mooncake's store over TCP, without GPU and RDMA: a master, a client that brings the memory, and one that reads.

As in an engine, the client that stores brings the memory, so storing is a copy inside this process and two questions to
the master. Reading is what another engine does: its bytes come over a socket.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from itertools import accumulate, count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

from kvledgerd.bench.contents import require
from kvledgerd.bench.peers.processes import Server, free_port
from kvledgerd.bench.peers.system import UNITS, LostError, Peer, System, Work

__all__ = ["MOONCAKE"]

_QUIET: Final = {"MC_LOG_LEVEL": "ERROR"}
_BUFFER_BYTES: Final = 64 << 20
_UNITS_EVER: Final = 4 * UNITS
_ROOM: Final = 1.25
"""The master makes room from nine tenths of the memory on, which would be measured as well."""


class _Client:
    """One client of the store, with memory for a unit that both can reach.

    Args:
        master: The master.
        address: Where it listens.
        sizes: Bytes of the objects of a unit.
        brings: Bytes of memory that the client brings.
    """

    def __init__(self, master: Server, address: str, sizes: tuple[int, ...], brings: int) -> None:
        store = import_module("mooncake.store").MooncakeDistributedStore
        self.store: Any = store()
        while self.store.setup("127.0.0.1", "P2PHANDSHAKE", brings, _BUFFER_BYTES, "tcp", "", address):
            master.pause()
            self.store = store()
        own = bytearray(sum(sizes))
        start = ctypes.addressof(ctypes.c_char.from_buffer(own))
        require(self.store.register_buffer(start, len(own)) == 0, "memory of an engine is registered")
        self.memory: Final = memoryview(own)
        self._sizes: Final = list(sizes)
        self._addresses: Final = [start + at for at in accumulate(sizes, initial=0)][: len(sizes)]

    def put(self, keys: list[str]) -> None:
        """Store what is in the memory."""
        answers = self.store.batch_put_from(keys, self._addresses, self._sizes)
        require(not any(answers), f"all objects are stored, got {answers}")

    def get(self, keys: list[str]) -> None:
        """Read objects into the memory."""
        answers = self.store.batch_get_into(keys, self._addresses, self._sizes)
        require(answers == self._sizes, f"all objects are read, got {answers}")


class _Mooncake:
    """The store.

    Args:
        work: What is stored and looked up.
        folder: For what the master says.
        life: Ends what runs.
    """

    def __init__(self, work: Work, folder: Path, life: ExitStack) -> None:
        self._work: Final = work
        self._output: Final = folder / "output"
        self._port: Final = free_port()
        self._master_life: Final = ExitStack()
        life.callback(self._master_life.close)
        master = self._start()
        address = f"127.0.0.1:{self._port}"
        brings = int(_ROOM * (_UNITS_EVER * len(work.unit) + _BUFFER_BYTES))
        self._storing: Final = _Client(master, address, work.sizes, brings)
        life.callback(self._storing.store.close)
        self._reading: Final = _Client(master, address, work.sizes, 0)
        life.callback(self._reading.store.close)
        self._storing.memory[:] = work.unit
        self._units: Final = count()
        self._last: list[str] = []
        self._looked_up: Final = [f"block {number}" for number in range(work.blocks)]

    def fill(self) -> None:
        """Touch all of the memory, then store the units and the keys that are looked up."""
        for _ in range(_UNITS_EVER):
            self.put()
        self._storing.store.remove_all()
        for _ in range(UNITS):
            self.put()
        require(self._storing.store.put_batch(self._looked_up, [b"x"] * self._work.blocks) == 0, "keys are stored")

    def put(self) -> None:
        unit = next(self._units)
        self._last = [f"{unit}/{number}" for number in range(len(self._work.sizes))]
        self._storing.put(self._last)

    def get(self) -> memoryview:
        self._reading.get(self._last)
        return self._reading.memory

    def exists(self) -> int:
        there: list[int] = self._reading.store.batch_is_exist(self._looked_up)
        return there.count(1)

    def restart(self) -> float:
        begin = perf_counter()
        self._master_life.close()
        master = self._start()
        while (answer := self._reading.store.is_exist(self._last[0])) < 0:
            master.pause()
        if not answer:
            raise LostError("its master knows of no object that was stored before SIGKILL")
        self._reading.get(self._last)
        return perf_counter() - begin

    def _start(self) -> Server:
        """Start the master."""
        ports = [f"--rpc_port={self._port}", f"--metrics_port={free_port()}"]
        command = [sys.executable, "-m", "mooncake.cli", *ports, "--rpc_address=127.0.0.1"]
        return Server(self._master_life, command, self._output)


@contextmanager
def _run(work: Work) -> Iterator[tuple[System, str]]:
    os.environ.update(_QUIET)
    with TemporaryDirectory(prefix="kvl-mooncake-") as folder, ExitStack() as life:
        system = _Mooncake(work, Path(folder), life)
        system.fill()
        (package, *_) = packages_distributions()["mooncake"]
        yield system, f"Mooncake {version(package)}, TCP, memory of the client that stores"


def _lacks() -> str:
    return "" if find_spec("mooncake") else "pip install mooncake-transfer-engine-non-cuda, or the one for your GPU"


MOONCAKE: Final = Peer("Mooncake", _lacks, _run)
