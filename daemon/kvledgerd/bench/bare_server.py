"""The floor of every look-up: an asyncio server that cuts frames and answers each with bytes made beforehand.

It is what remains of the daemon when nothing is decided, recorded or encoded: the same `BufferedProtocol`, the same
lengths, replies of the same size. It runs in a process of its own, as the daemon does.
"""

import asyncio
import gc
import struct
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self, cast

import msgspec

__all__ = ["BareServer", "Canned"]

_LENGTH: Final = struct.Struct("<I")
_BUFFER_BYTES: Final = 256 << 10


class Canned(msgspec.Struct, frozen=True):
    """What the server answers.

    Attributes:
        short: Whole frame that answers requests shorter than `border`.
        long: Whole frame that answers the others.
        border: Bytes of a request's body.
    """

    short: bytes
    long: bytes
    border: int


class BareServer:
    """The server as a process; a context manager that starts and ends it.

    Args:
        path: Its Unix socket.
        canned: What it answers.
    """

    def __init__(self, path: Path, canned: Canned) -> None:
        self.path: Final = path
        self._canned: Final = canned
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "kvledgerd.bench.bare_server", str(self.path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603  made here
        assert process.stdin is not None, "a pipe was asked for"
        assert process.stdout is not None, "a pipe was asked for"
        self._process = process
        process.stdin.write(msgspec.msgpack.encode(self._canned))
        process.stdin.close()
        process.stdout.readline()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None, "the block was entered"
        assert self._process.stdout is not None, "a pipe was asked for"
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()


class _Bare(asyncio.BufferedProtocol):
    def __init__(self, canned: Canned, shared: memoryview) -> None:
        self._canned: Final = canned
        self._shared: Final = shared
        self._held: Final = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  the buffer has one size
        return self._shared

    def buffer_updated(self, nbytes: int) -> None:
        held = self._held
        held += self._shared[:nbytes]
        while len(held) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(held)
            if len(held) < _LENGTH.size + length:
                return
            del held[: _LENGTH.size + length]
            self._transport.write(self._canned.short if length < self._canned.border else self._canned.long)


async def _serve(path: str, canned: Canned) -> None:
    shared = memoryview(bytearray(_BUFFER_BYTES))
    server = await asyncio.get_running_loop().create_unix_server(lambda: _Bare(canned, shared), path, backlog=4096)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    gc.freeze()
    async with server:
        await server.serve_forever()


def _main() -> None:
    canned = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Canned)
    asyncio.run(_serve(sys.argv[1], canned))


if __name__ == "__main__":
    _main()
