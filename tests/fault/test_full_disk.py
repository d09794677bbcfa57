"""A disk that is really full under the log: commits are refused by name, look-ups go on, and room ends it.

The file system is a small one in a mount namespace of its own, which goes with the process that made it.
"""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from kvledger.errors import CapacityError
from kvledger.wire.requests import Abort, Acquire, Commit, DropTopology, RegisterTopology, Release, TopologyPart
from kvledger_storage.events import IncarnationStopped
from kvledgerd.core.commands import Ask, Caller, EngineGone
from kvledgerd.core.decision import Decision
from kvledgerd.loop.log_space import LOG_FULL, LogSpace

# In the namespace: fill the disk, store until that is refused, look up, make room, store again.
INSIDE = """
import sys, time
from pathlib import Path
sys.path.insert(0, "tests")
from kvledger import Cache
from kvledger.errors import CapacityError
from kvledger.testing import Daemon
from kvledger_storage.log import verify
from support.tiny import check, store, tiny_layout

def drill(cache, wanted):
    end = time.monotonic() + 20
    while not wanted(why := cache.status().notes.get("drill", "")):
        assert time.monotonic() < end, why
        time.sleep(0.05)
    return why

place = Path(sys.argv[1])
filler = place / "filler"
settings = {"arena_bytes": "4MiB", "log_segment_bytes": "64KiB", "disk_bytes": "0", "drill_seconds": 1}
with Daemon(memory="64MiB", directory=place, settings=settings) as daemon, Cache.open(daemon.socket) as cache:
    layout = cache.register(tiny_layout())
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError as error:
            print("full", error.errno)
    stored = 0
    try:
        while stored < 2000:
            store(cache, layout, stored)
            stored += 1
    except CapacityError as error:
        print("refused", error.message.split(":")[0], error.field)
    print("drill", drill(cache, bool)[:27])
    looked = [check(cache, layout, number) for number in range(max(0, stored - 50), stored)]
    print("looked up", set(looked))
    print("spares", cache.status().counters["log_spares"])
    daemon.kill()
    daemon.wait_ready()
    print("killed", check(cache, layout, stored - 1), cache.status().counters["log_spares"])
    filler.unlink()
    end = time.monotonic() + 10
    while True:
        try:
            store(cache, layout, 5000)
            break
        except CapacityError:
            assert time.monotonic() < end, "room was not noticed"
            time.sleep(0.1)
    print("drill", drill(cache, lambda why: not why) or "well")
    print("stored again", check(cache, layout, 5000), cache.status().incarnation)
    assert daemon.stop() == 0
    print("verified", verify(daemon.log_dir).ok)
"""


def in_namespace(script, place):
    """Run a script on a file system of 3 MiB of its own, or skip with the reason."""
    mounted = 'mount -t tmpfs -o size=3m none "$0" && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", mounted, str(place)]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no file system of its own: {tried.stderr.strip()}")
    return subprocess.run(
        [*command, sys.executable, "-c", script, str(place)], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_full_disk_refuses_commits_and_serves_look_ups(tmp_socket_dir):
    """L37: on a full disk stores end in LOG_FULL, and the drill says so; everything is hit, and room is noticed."""
    found = in_namespace(INSIDE, tmp_socket_dir)

    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == [
        "full 28",
        "refused LOG_FULL log",
        "drill reserve: capacity: LOG_FULL",
        "looked up {50}",
        "spares 1",
        "killed 50 1",
        "drill well",
        "stored again 50 2",
        "verified True",
    ]
    assert list(tmp_socket_dir.iterdir()) == [], "nothing was mounted outside"


def ask(body, **more):
    """Return a request as it reaches the writer loop."""
    return Ask(Caller(1, 1, "default"), body, **more)


LOOK_UP = Acquire(1, 16, bytes(32))
CAPTURE = RegisterTopology([TopologyPart(1, 0, [])])
LOGGED = Decision((IncarnationStopped(1),))


@pytest.mark.parametrize(
    ("spares", "refused"), [(2, ()), (1, (Commit(1), CAPTURE)), (0, (Commit(1), CAPTURE, LOOK_UP))]
)
def test_what_is_refused_depends_on_the_room_that_is_left(spares, refused):
    """One spare less refuses what grows, none left look-ups too; what gives back and what already waits goes on."""
    space = LogSpace(SimpleNamespace(spares=spares, is_full=spares < 2), lambda: None)
    space.exhausted = True
    for body in (Commit(1), CAPTURE, LOOK_UP, Release(1), Abort(1), DropTopology(1)):
        if body in refused:
            with pytest.raises(CapacityError, match=LOG_FULL):
                space.admit(ask(body), LOGGED)
        else:
            space.admit(ask(body), LOGGED)
    space.admit(ask(Commit(1), parked=(7,)), LOGGED)
    space.admit(ask(Commit(1)), Decision())
    space.admit(EngineGone(1, "died"), LOGGED)
    LogSpace(SimpleNamespace(spares=spares, is_full=False), lambda: None).admit(ask(Commit(1)), LOGGED)
    assert space.is_short == (spares < 2)


@pytest.mark.parametrize(("spares", "goes_on"), [(1, True), (0, False)])
def test_nothing_is_refused_while_there_is_something_to_give_up(spares, goes_on):
    """A full disk asks for room at once, and commits go on in the last spare until nothing is left to give up."""
    asked = []
    recorder = SimpleNamespace(spares=spares, is_full=True)
    space = LogSpace(recorder, lambda: asked.append(1))
    if goes_on:
        space.admit(ask(Commit(1)), LOGGED)
    else:
        with pytest.raises(CapacityError, match=LOG_FULL):
            space.admit(ask(Commit(1)), LOGGED)
    assert asked
    space.exhausted, recorder.is_full = True, False
    space.admit(ask(Commit(1)), LOGGED)
    assert not space.exhausted, "a new shortage begins with everything that there is to give up"


# In the namespace: put prefixes on disk, fill the disk, and go on storing.
GIVING_UP = """
import sys, time
from pathlib import Path
sys.path.insert(0, "tests")
from kvledger import Cache
from kvledger.testing import Daemon
from support.tiny import check, prompt, store, tiny_layout

place = Path(sys.argv[1])
settings = {"arena_bytes": "4MiB", "log_segment_bytes": "64KiB", "disk_bytes": "1GiB", "disk_segment_bytes": "128KiB"}
with Daemon(memory="64MiB", directory=place, settings=settings) as daemon, Cache.open(daemon.socket) as cache:
    layout = cache.register(tiny_layout())
    for number in range(20):
        store(cache, layout, number)
        cache.offload(layout, prompt(number), boundary=50)
    before = cache.status().counters["disk_bytes"]
    with (place / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError as error:
            print("full", error.errno)
    for number in range(1000):
        store(cache, layout, number % 40)
    end = time.monotonic() + 60  # the next spare is made while others store
    while (after := cache.status().counters)["log_spares"] < 2 and time.monotonic() < end:
        time.sleep(0.01)
    print("stored on", after["disk_bytes"] < before, after["log_spares"])
    print("hit", {check(cache, layout, number) for number in range(40)})
    daemon.stop()
"""


def test_a_full_disk_takes_prefixes_before_commits(tmp_socket_dir):
    """L37: records that were used least recently make room for the log, and no commit is refused meanwhile."""
    found = in_namespace(GIVING_UP, tmp_socket_dir)

    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == ["full 28", "stored on True 2", "hit {50}"]
