"""What can go wrong with the log, each with the field it concerns and what to do about it.

`Problem` is the one description of damage: the error that refuses to start, the report of `verify` and the command line
all carry the same struct, so that an operator reads the same words wherever the damage was met.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pathlib import Path


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One damaged place of a log.

    Attributes:
        file: Path of the damaged file, as the log's directory was given.
        offset: Byte in that file at which reading had to stop.
        seq: First event that can not be read.
        rule: Name of the row of the recovery table that judged it.
        because: The reason for that judgement.
        expected: What should stand at that offset.
        found: What stands there.
        lost: What can no longer be read.
        safe: What is still whole.
        run_next: What to do now.
    """

    file: str
    offset: int
    seq: int
    rule: str
    because: str
    expected: str
    found: str
    lost: str
    safe: str
    run_next: str

    @property
    def headline(self) -> str:
        """Which file, where, and by which rule."""
        return f"{self.file}: damaged at offset {self.offset} (seq {self.seq}, rule {self.rule})"

    @property
    def details(self) -> list[str]:
        """The rest for people, a line each."""
        told = ("because", "expected", "found", "lost", "safe")
        return [*(f"{name}: {getattr(self, name)}" for name in told), f"next: {self.run_next}"]


class LogError(Exception):
    """Base of everything that the log raises by itself; `OSError` of the file system is passed on as it is."""


class LogLockedError(LogError):
    """Another process holds the log.

    Attributes:
        directory: The log's directory.
        pid: Process id that the holder left in the lock file, 0 if it has not yet.
    """

    def __init__(self, directory: Path, pid: int) -> None:
        super().__init__(
            f"{directory}: the log is held by process {pid or 'unknown'}; stop that daemon, "
            "or give this one a data directory of its own"
        )
        self.directory = directory
        self.pid = pid


class LogVersionError(LogError):
    """The log was written by a newer kvledger than this one.

    Attributes:
        file: The file whose version is newer.
        found: Version in the file.
        supported: Newest version that this code reads.
    """

    def __init__(self, file: Path | str, field: str, found: int, supported: int) -> None:
        super().__init__(
            f"{file}: {field} {found} is newer than {supported}, the newest that this kvledger reads; "
            "nothing was changed; install the kvledger that wrote it, or a newer one"
        )
        self.file = file
        self.found = found
        self.supported = supported


class LogRotError(LogError):
    """The log is damaged where it must not be, so whoever starts on it would lie about the past.

    Attributes:
        problem: What is damaged, what is lost, what is safe.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__("; ".join([problem.headline, *problem.details]))
        self.problem = problem


class FrameError(LogError):
    """Bytes that are not a whole frame, segment header or identity.

    Attributes:
        field: The field that is wrong.
        offset: Byte in the file at which that thing begins.
        expected: What it should have been.
        found: What it was.
    """

    def __init__(self, field: str, offset: int, expected: str, found: str) -> None:
        super().__init__(f"{field} at offset {offset}: expected {expected}, found {found}")
        self.field = field
        self.offset = offset
        self.expected = expected
        self.found = found


class EventRefusedError(LogError):
    """An event that can not be logged: it is not exactly one msgpack value, or larger than a frame may be.

    Attributes:
        index: Position of the event in what was submitted.
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"event {index} of the submitted ones {reason}; nothing of this submission was logged")
        self.index = index


class LogStoppedError(LogError):
    """The log writer met an error and stopped for good; what it had not reported is not promised."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the log writer stopped: {cause}; restart the daemon, recovery decides what was kept")
        self.cause = cause


class LogClosedError(LogError):
    """The log, or its writer, was used after it was closed, or opened for writing twice."""
