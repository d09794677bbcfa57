"""A throwaway daemon for tests of adapters and engines: real processes, a real socket, gone afterwards.

    with Daemon() as daemon, Cache.open(daemon.socket) as cache:
        ...
        daemon.kill()          # SIGKILL; the keeper starts it again, with the memory it had
        daemon.wait_ready()

Ready means that a hello was answered; nothing here sleeps and hopes.
"""

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kvledger.errors import DisconnectedError, ServiceError, error_from_wire
from kvledger.wire.framing import REPLY_MAX, Splitter, decode_reply, encode_frame
from kvledger.wire.replies import Failed, Welcome
from kvledger.wire.requests import PROTOCOL_VERSION, Hello

__all__ = ["Daemon", "DaemonError", "say_hello"]

# sun_path holds 108 bytes with its final zero.
_SOCKET_PATH_MAX: Final = 107
_SOCKET_NAME: Final = "kvledger.sock"
_LOG_TAIL_BYTES: Final = 4096


class DaemonError(ServiceError):
    """The throwaway daemon did not do what was asked in time; the message ends with what it wrote to its log."""


class Daemon:
    """A `kvledger serve` in a temporary directory of its own; a context manager that starts and stops it.

    Args:
        memory: Shared memory for the cache, as `--memory` takes it.
        directory: Where it keeps everything; a temporary one that is removed at the end if None.
        settings: Further settings, by their names in the configuration file. Unless they say otherwise nothing goes to
            disk or comes back by itself, and there is no drill (`disk_write`, `warm_percent`, `drill_seconds`), so
            that a test does not depend on time.
        keeper: Run under a keeper, so that `kill` is followed by a restart.
        config: A configuration file; settings win over it.

    Attributes:
        directory: Where everything lies.
        socket: Where clients connect.
        data_dir: The data directory.
        output: The file with what the daemon wrote to stderr, one JSON object a line.
    """

    def __init__(
        self,
        *,
        memory: str = "256MiB",
        directory: Path | None = None,
        settings: Mapping[str, object] | None = None,
        keeper: bool = True,
        config: Path | None = None,
    ) -> None:
        self._own: Final = directory is None
        self.directory: Final = _short_directory() if directory is None else directory
        self.socket: Final = self.directory / _SOCKET_NAME
        self.data_dir: Final = self.directory / "data"
        self.output: Final = self.directory / "daemon.log"
        file = () if config is None else ("--config", str(config))
        self._arguments: Final = ["--memory", memory, *file, *(() if keeper else ("--no-keeper",))]
        chosen = {"disk_write": "asked", "warm_percent": 0, "drill_seconds": 0, **(settings or {})}
        self._environment: Final = {f"KVLEDGER_{name.upper()}": str(value) for name, value in chosen.items()}
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<Daemon {'running' if self.running else 'stopped'} in {self.directory}>"

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clean_up()

    @property
    def log_dir(self) -> Path:
        """Directory of the event log, for `kvledger log verify`."""
        return self.data_dir / "log"

    @property
    def running(self) -> bool:
        """Whether the keeper (or the daemon, if there is none) has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the daemon itself, which the lock of its log names.

        Raises:
            DaemonError: There is none yet.
        """
        try:
            return int((self.log_dir / "lock").read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise self._failed("has not taken its lock yet") from error

    def start(self) -> None:
        """Start the processes; `wait_ready` tells when they serve."""
        command = [sys.executable, "-m", "kvledgerd.cli", "serve", *self._arguments]
        paths = ["--data", str(self.data_dir), "--socket", str(self.socket)]
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603  a list that is made here
                [*command, *paths],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | self._environment,
            )

    def wait_ready(self, seconds: float = 30.0) -> Welcome:
        """Wait until a hello is answered, and return the answer.

        Raises:
            DaemonError: It was not within ``seconds``, or the daemon has ended.
        """
        end = time.monotonic() + seconds
        while True:
            if not self.running:
                raise self._failed("has ended")
            try:
                return say_hello(self.socket, end - time.monotonic())
            except DisconnectedError as error:
                if time.monotonic() >= end:
                    raise self._failed(f"did not answer a hello within {seconds:g} s") from error
                time.sleep(0.01)

    def kill(self) -> None:
        """End the daemon, not its keeper, with SIGKILL, and return when it is dead.

        Raises:
            DaemonError: It is not running now.
        """
        pid = self.pid
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError as error:
            raise self._failed(f"(process {pid}) is dead already") from error
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            poller = select.poll()
            poller.register(pidfd, select.POLLIN)
            if not poller.poll(30_000):
                raise self._failed(f"(process {pid}) did not die")
        finally:
            os.close(pidfd)

    def stop(self, seconds: float = 30.0) -> int:
        """Stop everything in the orderly way and return the exit code.

        Raises:
            DaemonError: It was still there after ``seconds``, and was killed.
        """
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            self._process.wait()
            raise self._failed(f"did not stop within {seconds:g} s") from error

    def _clean_up(self) -> None:
        try:
            if self.running:
                self.stop()
        finally:
            if self._own:
                shutil.rmtree(self.directory, ignore_errors=True)

    def _failed(self, why: str) -> DaemonError:
        tail = b""
        if self.output.exists():
            tail = self.output.read_bytes()[-_LOG_TAIL_BYTES:]
        return DaemonError(f"the daemon {why}; its log ends with:\n{tail.decode(errors='replace')}", field="daemon")


def say_hello(path: Path, seconds: float) -> Welcome:
    """Connect, say hello, return the answer, and close.

    Args:
        path: The daemon's socket.
        seconds: How long to wait for the answer.

    Raises:
        DisconnectedError: Nobody listens, or nobody answers in time.
        KVLedgerError: The daemon refused.
    """
    hello = Hello((PROTOCOL_VERSION, PROTOCOL_VERSION), os.urandom(16), name="kvledger.testing")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(max(seconds, 0.001))
            sock.connect(str(path))
            sock.sendall(encode_frame(1, hello))
            reply = decode_reply(_one_body(sock))[1]
    except OSError as error:
        raise DisconnectedError(f"{path}: {error}", field="socket", remedy="is the daemon running?") from error
    if isinstance(reply, Failed):
        raise error_from_wire(reply.code, reply.message, reply.field, reply.remedy)
    assert isinstance(reply, Welcome), f"hello was answered with {reply!r}"
    return reply


def _one_body(sock: socket.socket) -> bytes:
    splitter = Splitter(REPLY_MAX)
    while True:
        # The descriptor that comes along is not received, so the kernel closes it.
        data = sock.recv(4096)
        if not data:
            raise ConnectionResetError("the connection was closed before the answer came")
        bodies = splitter.feed(data)
        if bodies:
            return bodies[0]


def _short_directory() -> Path:
    for base in (tempfile.gettempdir(), "/tmp"):  # noqa: S108  mkdtemp makes a private directory in it
        if len(os.fsencode(base)) + len("/kvl-12345678/") + len(_SOCKET_NAME) <= _SOCKET_PATH_MAX:
            return Path(tempfile.mkdtemp(prefix="kvl-", dir=base))
    raise DaemonError("the temporary directory has too long a path for a socket", field="TMPDIR", remedy="shorten it")
