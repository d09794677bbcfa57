"""Writing the log of a rebuild: beside the place where it belongs, and there only when all of it is durable."""

import shutil
from pathlib import Path

from kvledger.errors import CallerError, ServiceError
from kvledger_storage.events import encode
from kvledger_storage.log import EventLog, RealLogIO
from kvledger_storage.log.creation import create_log
from kvledger_storage.log.identity import Identity
from kvledger_storage.log.segment import SEGMENT_BYTES
from kvledgerd.salvage.events import Rebuilt

__all__ = ["write_log"]

_ACTOR = "operator"
_BATCH_EVENTS = 256


def write_log(data: Path, log_id: bytes, made: Rebuilt, time_ms: int) -> None:
    """Make the log of a data directory that has none.

    Args:
        data: The data directory.
        log_id: What the new log is called: as the records say, or they would belong to another.
        made: What it says.
        time_ms: Wall time of its events, ms since 1970.

    Raises:
        CallerError: There is a log.
        ServiceError: It could not be written.
        OSError: As above.
    """
    final, aside = data / "log", data / "log.rebuilt"
    if final.exists():
        raise CallerError(
            f"{final} exists", field="data", remedy="move it aside if a rebuild is meant to take its place"
        )
    shutil.rmtree(aside, ignore_errors=True)
    io = RealLogIO()
    io.make_directory(aside)
    create_log(io, aside, Identity(log_id=log_id), SEGMENT_BYTES)
    _fill(aside, made, time_ms)
    aside.rename(final)
    io.sync_directory(data)


def _fill(directory: Path, made: Rebuilt, time_ms: int) -> None:
    failures: list[BaseException] = []
    encoded = [encode(event, time_ms, _ACTOR) for event in made.events]
    with EventLog.open(directory) as log:
        writer = log.writer(made.state.incarnation, lambda *_: None, failures.append)
        for first in range(0, len(encoded), _BATCH_EVENTS):
            writer.submit([encoded[first : first + _BATCH_EVENTS]], durable=True)
    if failures:
        raise ServiceError(f"{directory}: {failures[0]}", field="data", remedy="make room, and rebuild again")
