"""From a data directory to a state: everything that happens before there is an event loop.

The order matters. The lock on the log comes first, since only its holder may map an arena writable. Then the log is
replayed, each event through the same `apply` that made it, with the digest compared at every checkpoint. Only then is
it known which of the descriptors that came back are arenas.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kvledger_storage.adoption import Adoption, KnownArena, adopt_arenas
from kvledger_storage.disk.store import DiskStore
from kvledger_storage.events import decode
from kvledger_storage.log import Anchor, EventLog, LogLockedError, LogRotError, Quarantine, RealLogIO, set_aside
from kvledgerd.collector import collector_paused
from kvledgerd.core.apply import apply
from kvledgerd.core.placement.sureness import tenants_with_arenas
from kvledgerd.core.state import State
from kvledgerd.life.secret import load_secret
from kvledgerd.replaying import MISFITS, check_beginning, contradiction
from kvledgerd.settings.disk_sizes import disk_segment_bytes
from kvledgerd.settings.loading import ConfigError, core_config
from kvledgerd.settings.table import Config
from kvledgerd.snapshots.choice import chosen
from kvledgerd.snapshots.origin import origin
from kvledgerd.tenants import tenant_digest

__all__ = ["Recovered", "known_arenas", "recover"]

# The kernel lets go of a dead process's locks before anybody can see that it has died, so whoever started us because
# the older daemon died finds the lock free. A moment is left to those that two people start at the same time. What maps
# arenas beside the daemon holds the lock as well and dies with it, but a GPU may take its time over that.
_LOCK_SECONDS: Final = 1.0
_ORPHAN_SECONDS: Final = 30.0
_LOCK_POLL_SECONDS: Final = 0.02

_PROGRESS_EVENTS: Final = 2_000
# Per cent that judging the log counts for, and the replay after it.
_HALF: Final = 50

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the data directory and the descriptor store gave.

    Attributes:
        log: Open and locked, without a writer yet.
        state: As the log tells it.
        incarnation: Number of this run.
        secret: 32 bytes.
        adoption: Arenas that were adopted, and what was refused.
        store: The disk tier; which records are alive it has not been told.
        snapshot_seq: Last event of the snapshot that the replay began with, 0 if there was none.
    """

    log: EventLog
    state: State
    incarnation: int
    secret: bytes
    adoption: Adoption
    store: DiskStore
    snapshot_seq: int


def recover(config: Config, descriptors: Mapping[str, Sequence[int]], progress: Callable[[str], object]) -> Recovered:
    """Open and replay the data directory and adopt what survived; blocks for as long as that takes.

    Args:
        config: The settings.
        descriptors: Name to descriptors, as the store gave them back; all of them change hands.
        progress: Takes a line for people now and then.

    Raises:
        LogError: The log is held by another process, damaged, contradicts itself, or is of a newer version.
        EventError: The log holds an event of a newer form.
        KVLedgerError: The data directory, the secret or the disk tier can not be used.
        OSError: The file system failed.
    """
    _make_directory(config.data_dir)
    try:
        return _recovered(config, descriptors, progress)
    except LogRotError as error:
        if not config.quarantine_log:
            raise
        aside = set_aside(config.data_dir / "log", error.problem, segment_bytes=config.log_segment_bytes)
        _tell_set_aside("contradictory log was set aside", aside)
    return _recovered(config, descriptors, progress)


def _recovered(
    config: Config, descriptors: Mapping[str, Sequence[int]], progress: Callable[[str], object]
) -> Recovered:
    log = _open(config, progress)
    try:
        return _from_log(config, log, descriptors, progress)
    except BaseException:
        log.close()
        raise


def _from_log(
    config: Config, log: EventLog, descriptors: Mapping[str, Sequence[int]], progress: Callable[[str], object]
) -> Recovered:
    secret = load_secret(config.data_dir)
    state, snapshot_seq = _replayed(config, log, progress)
    _catch_up(log, state)
    adoption = adopt_arenas(descriptors, log.log_id, log.boot_id, known_arenas(config, state))
    for name, error in adoption.refused:
        _log.warning("descriptor refused", name=name, why=error.message)
    store = DiskStore.open(
        str(config.data_dir), log.log_id, segment_bytes=disk_segment_bytes(config), quota_bytes=config.disk_bytes
    )
    if store.read_only:
        _log.warning("disk tier takes no writes", why=store.read_only)
    incarnation = max(log.last_incarnation, state.incarnation) + 1
    return Recovered(log, state, incarnation, secret, adoption, store, snapshot_seq)


def _make_directory(data: Path) -> None:
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        remedy = "name a directory on a local file system that the daemon may make or write"
        raise ConfigError(f"{data}: {error.strerror}", field="data_dir", remedy=remedy) from error


def _replayed(config: Config, log: EventLog, progress: Callable[[str], object]) -> tuple[State, int]:
    """Return the state that the log makes, and the last seq of the snapshot that spared the events before it."""
    end = (log.last_seq, log.recovered_chain)
    found = chosen(RealLogIO(), config.data_dir, log.log_id, end, core_config(config))
    if found is not None:
        snapshot, state = found
        try:
            replay(log, state, progress, from_seq=snapshot.seq + 1)
        except LogRotError as error:
            _log.exception("snapshot does not lead to what was logged; replaying all", seq=snapshot.seq, why=str(error))
        else:
            return state, snapshot.seq
    begun = origin(RealLogIO(), config.data_dir, core_config(config))
    replay(log, begun.state, progress, from_seq=begun.seq + 1)
    return begun.state, 0


def _catch_up(log: EventLog, state: State) -> None:
    """Finish what an older incarnation had decided about the log's past and not carried out.

    Raises:
        LogRotError: Somebody else moved the log's beginning: no event tells of it.
    """
    check_beginning(log.directory, log.identity, state)
    if log.begins.live.seq < state.live_from[0]:
        log.archive_through(Anchor(*state.live_from))
    if log.begins.kept.seq < state.kept_from[0]:
        log.retire_through(Anchor(*state.kept_from))


def replay(log: EventLog, state: State, progress: Callable[[str], object], *, from_seq: int = 1) -> None:
    """Apply the events of the log from `from_seq` on, in order.

    Raises:
        EventError: An event is of a newer form.
        LogRotError: An event does not fit, or a checkpoint disagrees.
    """
    begin = time.monotonic()
    count, total, seq = 0, log.last_seq - max(from_seq, log.first_seq) + 1, from_seq
    with collector_paused():
        try:
            for logged in log.read(from_seq):
                seq = logged.seq
                apply(state, decode(logged.event).event)
                count += 1
                if count % _PROGRESS_EVENTS == 0:
                    progress(f"recovering {_HALF + _HALF * count // total} %: {count} of {total} events replayed")
        except MISFITS as error:
            raise contradiction(log.directory, seq, error) from error
    seconds = time.monotonic() - begin
    _log.info("log replayed", events=count, last_seq=log.last_seq, digest=f"{state.digest():016x}", seconds=seconds)


def _open(config: Config, progress: Callable[[str], object]) -> EventLog:
    def tell(read: int, total: int) -> None:
        progress(f"recovering {_HALF * read // total} %: {read} of {total} segments of the log judged")

    begin = time.monotonic()
    while True:
        try:
            log = EventLog.open(
                Path(config.data_dir, "log"),
                on_corrupt="quarantine" if config.quarantine_log else "refuse",
                segment_bytes=config.log_segment_bytes,
                progress=tell,
            )
        except LogLockedError as error:
            if time.monotonic() > begin + (_LOCK_SECONDS if _lives(error.pid) else _ORPHAN_SECONDS):
                raise
            time.sleep(_LOCK_POLL_SECONDS)
            continue
        if log.quarantined is not None:
            _tell_set_aside("damaged log was set aside", log.quarantined)
        if log.repaired is not None:
            _log.warning("unsynced tail of the log was set aside", **msgspec.structs.asdict(log.repaired))
        return log


def _tell_set_aside(what: str, aside: Quarantine) -> None:
    problem = aside.problem  # what to do next was just done
    _log.error(what, folder=aside.folder, why=problem.headline, because=problem.because, safe=problem.safe)


def _lives(pid: int) -> bool:
    """Tell whether the daemon that took the lock is there; 0 is one that has not said yet who it is."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def known_arenas(config: Config, state: State) -> dict[int, KnownArena]:
    """Return the arenas to adopt: all, unless more tenants hold some than memory was set aside for.

    Then those of tenants that no rule names are given up: nobody but an operator could use them, and who came in their
    place would find no memory. What a captured graph reads stays.
    """
    held, named = tenants_with_arenas(state), config.access.tenants
    leaving: dict[str, None] = {}
    if len(dict.fromkeys((*named, *held))) > state.config.tenants:
        pinning = [one.tenant for one in state.topologies.values()]
        leaving = dict.fromkeys(tenant for tenant in held if tenant not in (*named, *pinning))
        _log.warning("memory of tenants that no rule names is given up", tenants=list(leaving))
    return {
        arena.id: KnownArena(tenant_digest(arena.tenant), arena.kind, arena.bytes)
        for arena in state.arenas.values()
        if arena.ready and arena.tenant not in leaving
    }
