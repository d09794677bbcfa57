"""The demo's end of an engine process: start it, give orders, take answers, and leave nothing behind."""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from kvledger.layout import Layout
from kvledgerd.demo.messages import Answer, Failed, Order, Ran, Ready

__all__ = ["EngineError", "EngineProcess"]

_SECONDS: Final = 150.0
_CLOSE_SECONDS: Final = 5.0
_TAIL_BYTES: Final = 2000
# A prefill makes and frees scores of 100 MB; giving each back to the system costs as much time as the arithmetic.
_KEEP_FREED_MEMORY: Final = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(8 << 30)}


class EngineError(Exception):
    """An engine process ended, failed or did not answer; the message ends with what it wrote to stderr."""


class EngineProcess:
    """One engine process; a context manager that ends it.

    Args:
        name: What people call it.
        socket: The daemon's socket.
        models: Names of the models that it serves.
        folder: Where its stderr and its temporary files are kept.
    """

    def __init__(self, name: str, socket: Path, models: Sequence[str], folder: Path) -> None:
        self.name: Final = name
        self._errors: Final = folder / f"engine-{name}.log"
        self._buffer = b""
        command = [sys.executable, "-m", "kvledgerd.demo.engine", "--socket", str(socket), "--name", name]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - a list that is made here
                [*command, "--models", ",".join(models)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # torch leaves caches in the temporary directory
                env=os.environ | _KEEP_FREED_MEMORY | {"TMPDIR": str(folder)},
                # Ctrl-C is for the demo, which then ends its engines itself
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        self.close()

    def layouts(self) -> Mapping[str, Layout]:
        """Wait until the engine is ready, once, and return the layouts of its models."""
        answer = self._take()
        assert isinstance(answer, Ready), "the first line says that the engine is ready"
        return answer.layouts

    def post(self, order: Order) -> None:
        """Give an order without waiting; orders are carried out one after the other."""
        assert self._process.stdin is not None, "it was made as a pipe"
        try:
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._failed("has ended") from error

    def take(self) -> Ran:
        """Wait for the answer to the oldest order that has none yet.

        Raises:
            EngineError: the engine failed, ended, or did not answer in time.
        """
        answer = self._take()
        if isinstance(answer, Failed):
            raise self._failed(f"could not do what it was told:\n{answer.error}")
        assert isinstance(answer, Ran), "each order is answered with what was run"
        return answer

    def ask(self, order: Order) -> Ran:
        """Give an order and wait for its answer; raises as `take` does."""
        self.post(order)
        return self.take()

    def close(self) -> None:
        """End the process and wait for its end; closing twice is nothing."""
        for pipe in (self._process.stdin, self._process.stdout):
            # An order that was never taken is lost with the engine
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _take(self) -> Answer:
        answer: Answer = msgspec.json.decode(self._line(), type=Answer)
        return answer

    def _line(self) -> bytes:
        assert self._process.stdout is not None, "it was made as a pipe"
        descriptor, end = self._process.stdout.fileno(), time.monotonic() + _SECONDS
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while b"\n" not in self._buffer:
            if not poller.poll(max(end - time.monotonic(), 0) * 1000):
                raise self._failed(f"did not answer within {_SECONDS:g} s")
            data = os.read(descriptor, 1 << 16)
            if not data:
                raise self._failed(f"has ended, exit code {self._process.wait(_CLOSE_SECONDS)}")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _failed(self, why: str) -> EngineError:
        tail = self._errors.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
        said = f"; its stderr ends with:\n{tail}" if tail else ""
        return EngineError(f"engine {self.name} {why}{said}")
