"""Small parts of start-up and life: the secret, the tenant's root, exit codes, the watchdog."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kvledger.errors import CapacityError
from kvledger_storage.log import EventLog, LogLockedError, LogStoppedError
from kvledgerd.access import AccessRules
from kvledgerd.core.apply import DigestMismatchError
from kvledgerd.core.config import CoreConfig
from kvledgerd.exits import Exit, exit_of
from kvledgerd.life import recovery
from kvledgerd.life.recovery import known_arenas, recover
from kvledgerd.life.secret import SECRET_NAME, SecretError, load_secret
from kvledgerd.life.watchdog import Watchdog
from kvledgerd.loop.writer_statistics import WriterStatistics
from kvledgerd.settings.loading import Config
from kvledgerd.tenants import root_key
from property.test_core_histories import History
from support.layouts import pick
from support.world import World


def test_secrets_are_made_once(tmp_path):
    """The secret is made at the first start, for the daemon's user alone, and stays the same."""
    secret = load_secret(tmp_path)

    assert load_secret(tmp_path) == secret
    assert len(secret) == 32
    assert (tmp_path / SECRET_NAME).stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [SECRET_NAME]


def test_half_made_secrets_are_made_anew(tmp_path):
    """What a crash left while the secret was being made does not become the secret."""
    (tmp_path / f"{SECRET_NAME}.draft").write_bytes(b"half")

    assert len(load_secret(tmp_path)) == 32


@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [(bytes(31), 0o600, "does not hold 32 bytes"), (bytes(33), 0o600, "32 bytes"), (bytes(32), 0o640, "chmod 600")],
)
def test_wrong_secrets_are_refused_unchanged(tmp_path, content, mode, says):
    """A secret of the wrong size, or one that others may read, is refused with a remedy and left as it is."""
    path = tmp_path / SECRET_NAME
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(SecretError, match=says):
        load_secret(tmp_path)

    assert path.read_bytes() == content


def test_secrets_are_no_links(tmp_path):
    """A secret that is a symbolic link is refused."""
    (tmp_path / "elsewhere").write_bytes(bytes(32))
    (tmp_path / SECRET_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SecretError):
        load_secret(tmp_path)


def test_roots_differ_by_tenant_and_secret():
    """The root of the chain hashes depends on secret and tenant, and on nothing else."""
    roots = {root_key(secret, tenant) for secret in (bytes(32), bytes([1]) * 32) for tenant in ("a", "b")}

    assert len(roots) == 4
    assert root_key(bytes(32), "a") in roots


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DigestMismatchError(), Exit.DAMAGED),
        (LogLockedError("data", 7), Exit.CONFIG),
        (LogStoppedError(OSError()), Exit.IO),
        (OSError(), Exit.IO),
        (CapacityError("none"), Exit.UNAVAILABLE),
        (SecretError("not ours"), Exit.CONFIG),
        (ZeroDivisionError(), Exit.FAULT),
    ],
)
def test_exit_codes_tell_what_happened(error, code):
    """Each kind of end has its own exit code."""
    assert exit_of(error) is code


def test_watchdogs_are_fed_only_while_the_log_moves():
    """The watchdog is fed while the log is level or moving, and not while it stands with writes or syncs to do."""
    looks = [(0, 0, 0, 0), (5, 2, 0, 0), (6, 2, 0, 0), (6, 4, 0, 0), (6, 6, 0, 0), (7, 7, 0, 7), (7, 7, 0, 7)]
    looks += [(7, 7, 7, 7), (9, 9, 7, 7), (9, 9, 7, 7)]
    fed, seqs = [], iter(looks)
    watchdog = Watchdog(lambda: fed.append(1), lambda: WriterStatistics(1, 0, 0, 0, 0, 0, *next(seqs)))

    found = [watchdog.check() for _ in looks]

    assert found == [True, True, False, True, True, True, False, True, True, True]
    assert len(fed) == found.count(True)


LEAVES = """
import subprocess, sys
from pathlib import Path
from kvledger_storage.log.io import RealLogIO
from kvledger_storage.log.lock import take_lock
lock = take_lock(RealLogIO(), Path(sys.argv[1]))
subprocess.Popen(["sleep", sys.argv[2]], pass_fds=[lock])
"""


def test_a_start_waits_for_what_a_dead_daemon_left(tmp_path, monkeypatch):
    """While a process of a dead daemon maps its arenas, and so holds the lock, the next daemon waits for its end."""
    monkeypatch.setattr(recovery, "_LOCK_SECONDS", 0.0)
    config = Config(data_dir=tmp_path)
    recover(config, {}, lambda _: None).log.close()
    subprocess.run([sys.executable, "-c", LEAVES, str(tmp_path / "log"), "0.5"], check=True)

    recover(config, {}, lambda _: None).log.close()


def test_a_start_beside_a_living_daemon_is_refused(tmp_path, monkeypatch):
    """A daemon that is there keeps its lock, and the second one says so soon."""
    monkeypatch.setattr(recovery, "_LOCK_SECONDS", 0.0)
    config = Config(data_dir=tmp_path)
    first = recover(config, {}, lambda _: None)
    with pytest.raises(LogLockedError, match="held by process"):
        recover(config, {}, lambda _: None)
    first.log.close()


def test_recovery_tells_how_far_it_is_from_the_first_segment_on(tmp_path, monkeypatch):
    """Judging the log counts for the first half of the per cent, the replay for the second, and they never fall."""
    monkeypatch.setattr("kvledgerd.life.recovery._PROGRESS_EVENTS", 100)
    history = History(3)
    history.run(300)
    with EventLog.open(tmp_path / "log", segment_bytes=4096) as log:
        writer = log.writer(1, lambda *_: None, lambda _: None)
        for raw in history.world.log:
            writer.submit([[raw]], durable=True)
    said = []
    recover(Config(data_dir=tmp_path), {}, said.append).log.close()

    percents = [int(text.removeprefix("recovering ").split(" %")[0]) for text in said]
    assert percents == sorted(percents)
    assert percents[0] == 0
    assert percents[-1] > 50
    assert "segments of the log judged" in said[0]
    assert "events replayed" in said[-1]


@pytest.mark.parametrize(
    ("tenants", "named", "adopted"), [(3, "ac", "ab"), (2, "ac", "a"), (2, "a", "ab"), (2, "ab", "ab")]
)
def test_who_is_gone_makes_room_for_who_comes(tenants, named, adopted):
    """Arenas of tenants that no rule names are given up if more tenants need memory than it was set aside for."""
    world = World(CoreConfig(memory_bytes=16 << 20, arena_bytes=1 << 20, tenants=tenants))
    for name in "ab":
        user = world.engine(name, name)
        user.store(user.register(pick("C")), list(range(600)), 512)
    rules = AccessRules.parse([{"tenant": name, "right": "writer", "uid": uid} for uid, name in enumerate(named)])
    found = known_arenas(Config(access=rules), world.state)
    assert {world.state.arenas[number].tenant for number in found} == set(adopted)
