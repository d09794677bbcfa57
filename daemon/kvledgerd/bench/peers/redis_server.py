"""Redis, or Valkey, on a Unix socket: once with a log of what it is told, and once without."""

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Final

from kvledgerd.bench.contents import require
from kvledgerd.bench.peers.processes import Server
from kvledgerd.bench.peers.redis_connection import Connection
from kvledgerd.bench.peers.system import UNITS, Peer, System, Work

__all__ = ["REDIS", "REDIS_WITHOUT_LOG"]

_PROGRAMS: Final = ("redis-server", "valkey-server")
_PAUSE: Final = 0.002


class _Redis:
    """A server in a folder of its own.

    Args:
        work: What is stored and looked up.
        folder: The folder.
        options: Of the server, by name.
    """

    def __init__(self, work: Work, folder: Path, options: Mapping[str, str]) -> None:
        self._work: Final = work
        self._path: Final = folder / "redis.sock"
        self._output: Final = folder / "output"
        # The log is rewritten before the first restart only, never beside a measurement.
        every = {"port": "0", "unixsocket": str(self._path), "dir": str(folder), "save": ""}
        chosen = every | {"auto-aof-rewrite-percentage": "0"} | dict(options)
        self._arguments: Final = [word for name, value in chosen.items() for word in (f"--{name}", value)]
        self._keys: Final = [b"%d" % number for number in range(work.blocks)]
        self._copy: Final = memoryview(bytearray(len(work.unit)))
        self._life: Final = ExitStack()
        self._stored = 0
        self._is_rewritten = False
        self._storing: Connection
        self._reading: Connection

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            UnusablePeerError: It ended, or did not answer in time.
        """
        server = Server(self._life, [_program(), *self._arguments], self._output)
        while True:
            with suppress(OSError):
                self._storing, self._reading = self._connected(server), self._connected(server)
                return
            server.pause()

    def stop(self) -> None:
        """End it with SIGKILL."""
        self._life.close()

    def fill(self) -> None:
        """Store all units, twice, and the keys that are looked up."""
        for key in self._keys:
            self._storing.set(key, self._work.unit[:1])
        for _ in range(2 * UNITS):
            self.put()

    def put(self) -> None:
        at = 0
        for number, size in enumerate(self._work.sizes):
            self._storing.set(_key(self._stored, number), self._work.unit[at : at + size])
            at += size
        self._stored += 1

    def get(self) -> memoryview:
        at = 0
        for number, size in enumerate(self._work.sizes):
            self._reading.get(_key(self._stored - 1, number), self._copy[at : at + size])
            at += size
        return self._copy

    def exists(self) -> int:
        return int(self._reading.ask(b"EXISTS", *self._keys)[1:])

    def restart(self) -> float:
        self._rewrite()
        first = self._copy[: self._work.sizes[0]]
        first[:] = bytes(len(first))
        begin = perf_counter()
        self.stop()
        self.start()
        self._reading.get(_key(0, 0), first)
        seconds = perf_counter() - begin
        require(first == self._work.unit[: len(first)], "an object that was stored before SIGKILL")
        return seconds

    def _connected(self, server: Server) -> Connection:
        """Connect, and wait while it reads its log."""
        connection = Connection(self._path)
        self._life.callback(connection.close)
        while connection.ask(b"PING") != b"+PONG\r\n":
            server.pause()
        return connection

    def _rewrite(self) -> None:
        """Leave nothing in the log but what is held, so that a start reads as little as possible."""
        if not self._is_rewritten:
            self._storing.ask(b"BGREWRITEAOF")
            while b"aof_rewrite_in_progress:0" not in self._storing.ask(b"INFO", b"persistence"):
                sleep(_PAUSE)
            self._is_rewritten = True


def _key(unit: int, number: int) -> bytes:
    return b"%d/%d" % (unit % UNITS, number)


def _program() -> str:
    """Return the server's program, empty if there is none."""
    return next(filter(None, map(shutil.which, _PROGRAMS)), "")


def _lacks() -> str:
    return "" if _program() else f"install {' or '.join(_PROGRAMS)} and have it on the PATH"


def _version() -> str:
    said = subprocess.run([_program(), "--version"], capture_output=True, check=True, text=True).stdout.split()  # noqa: S603  made here
    return f"{said[0]} {said[2].removeprefix('v=')}"


def _running(options: Mapping[str, str]) -> Callable[[Work], AbstractContextManager[tuple[System, str]]]:
    @contextmanager
    def run(work: Work) -> Iterator[tuple[System, str]]:
        with TemporaryDirectory(prefix="kvl-redis-") as folder:
            redis = _Redis(work, Path(folder), options)
            try:
                redis.start()
                redis.fill()
                yield redis, ", ".join((_version(), *(f"{name} {value}" for name, value in options.items())))
            finally:
                redis.stop()

    return run


REDIS: Final = Peer("Redis", _lacks, _running({"appendonly": "yes", "appendfsync": "everysec"}))
"""What it has acknowledged outlives SIGKILL of the server, as what kvledger has outlives that of the daemon."""

REDIS_WITHOUT_LOG: Final = Peer("Redis without log", _lacks, _running({"appendonly": "no"}), only_put=True)
"""Nothing outlives the server, which stores faster."""
