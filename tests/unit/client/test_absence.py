"""A daemon that is not there: what it costs those who ask, and how soon they notice that it is back."""

import asyncio
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kvledger import AsyncCache, Cache
from kvledger._sync.dialling import dial
from kvledger.absence import Absence, AbsentError
from kvledger.errors import DisconnectedError
from kvledger.waiting import DeadlineError

GONE = AbsentError("nobody answers", field="socket_path", remedy="start it")


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self):
        """Return the time of now."""
        return self.now


@pytest.fixture
def dials(monkeypatch):
    """Give the list of attempts to connect; the daemon is expected back at once or not at all."""
    made = []

    def counting(path, *rest):
        made.append(path)
        return dial(path, *rest)

    monkeypatch.setattr("kvledger.absence._PATIENCE", 0.0)
    monkeypatch.setattr("kvledger._sync.session.dial", counting)
    return made


@pytest.fixture
def long_pause(monkeypatch):
    """Have nobody dial again within a minute, however slowly a test goes on."""
    monkeypatch.setattr("kvledger.absence._PAUSE_FIRST", 60.0)


def test_pause_grows_to_its_limit():
    """Each failure doubles the time until the next try, from 0.5 to 5 seconds, and the error tells it."""
    clock = Clock()
    absence = Absence(clock)
    told = []
    for _ in range(6):
        absence.require_due()
        told.append(absence.note(GONE).remedy)
        clock.now += 5
    assert [text.split()[-4] for text in told] == ["0.5", "1.0", "2.0", "4.0", "5.0", "5.0"]
    assert told[0] == "start it; the next call after 0.5 s tries again"


def test_nothing_is_tried_before_its_time():
    """Within the pause the same error comes at once, with the time that is left; after it one may dial."""
    clock = Clock()
    absence = Absence(clock)
    absence.note(GONE)
    clock.now += 0.3
    with pytest.raises(AbsentError, match=r"nobody answers \(start it; the next call after 0\.2 s"):
        absence.require_due()
    clock.now += 0.3
    absence.require_due()


def test_patience_is_for_the_first_who_finds_nobody():
    """A daemon that was there is dialled for a second; one that was away already is dialled once."""
    absence = Absence(Clock())
    assert absence.patience == 1
    absence.note(GONE)
    assert absence.patience == 0
    absence.end()
    assert absence.patience == 1
    absence.require_due()


@pytest.mark.usefixtures("long_pause")
@pytest.mark.parametrize("is_file_left", [False, True])
def test_calls_without_a_daemon_fail_at_once(daemon, dials, is_file_left):
    """After one call found nobody, with or without a socket file, others do not dial, however far their deadline is."""
    with Cache.open(daemon.path, timeout=60) as cache:
        daemon.stop()
        if not is_file_left:
            Path(daemon.path).unlink()
        dials.clear()
        for _ in range(5):
            with pytest.raises(DisconnectedError, match=r"socket_path: .* next call after [1-6]\d\.\d s tries again"):
                cache.status()
        assert len(dials) == 1


def test_daemon_that_is_back_is_found_after_the_pause(daemon, dials, monkeypatch):
    """When the pause is over one call dials again and finds the daemon; the next absence starts anew."""
    monkeypatch.setattr("kvledger.absence._PAUSE_FIRST", 0.02)
    with Cache.open(daemon.path, timeout=60) as cache:
        for _ in range(2):
            daemon.stop()
            with pytest.raises(DisconnectedError):
                cache.status()
            daemon.start()
            time.sleep(0.03)
            assert cache.status().incarnation == 1


@pytest.mark.usefixtures("long_pause")
def test_threads_share_one_wait(daemon, dials):
    """Of many threads that miss the daemon at the same time one dials, and all are told."""
    with Cache.open(daemon.path, timeout=60) as cache:
        daemon.stop()
        dials.clear()
        with ThreadPoolExecutor(8) as pool:
            found = [pool.submit(cache.status) for _ in range(8)]
        assert all(isinstance(one.exception(), DisconnectedError) for one in found)
        assert len(dials) == 1


def test_socket_that_is_held_is_worth_the_deadline(tmp_socket_dir, dials):
    """Who can connect waits until the deadline: a keeper holds the socket while its daemon restarts."""
    path = str(tmp_socket_dir / "k.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        held.bind(path)
        held.listen(8)
        with pytest.raises(DeadlineError, match=r"no answer within 0\.1 seconds"):
            Cache.open(path, timeout=0.1)
    assert len(dials) == 1


@pytest.mark.asyncio
async def test_tasks_without_a_daemon_fail_at_once(daemon, monkeypatch):
    """The asynchronous cache has the same pause."""
    monkeypatch.setattr("kvledger.absence._PATIENCE", 0.0)
    async with await AsyncCache.open(daemon.path, timeout=60) as cache:
        await asyncio.to_thread(daemon.stop)
        for _ in range(3):
            with pytest.raises(DisconnectedError, match="tries again"):
                await cache.status()
