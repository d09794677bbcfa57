"""Hits and units that are dropped while they hold something: who did it is told, and nobody else."""

import gc
import subprocess
import sys
import warnings

import pytest

from kvledger import AsyncCache, Cache
from kvledger.wire import requests
from unit.client.fake import layout
from unit.client.test_hit import TOKENS, acquired, fill, offer


@pytest.fixture
def hitting(daemon):
    """Give a daemon that has something to lend."""
    fill(daemon)
    daemon.answers[requests.Acquire] = acquired(offer(32))
    return daemon


def test_dropped_hit_is_told(hitting, cache):
    """A hit that nobody holds any more, and nobody released, warns with what to do."""
    hit = cache.acquire(cache.register(layout()), TOKENS)
    with pytest.warns(ResourceWarning, match=r"<Hit leased, 32 of 40 .* was dropped; .* use `with`, or call release"):
        del hit


@pytest.mark.parametrize("is_broken", [False, True])
def test_dropped_unit_is_told(cache, is_broken):
    """A unit that nobody holds any more warns, also after an error that left nothing but to abort it."""
    unit = cache.reserve(cache.register(layout()), TOKENS, boundary=32)
    if is_broken:
        unit._state = "broken"
    with pytest.warns(ResourceWarning, match=r"<Unit \w+, 3 objects, .* dropped; .*call commit\(\) or abort\(\)"):
        del unit


@pytest.mark.asyncio
async def test_dropped_by_a_task_is_told(hitting):
    """Hits and units of the asynchronous cache warn as well."""
    async with await AsyncCache.open(hitting.path) as cache:
        registered = await cache.register(layout())
        hit, unit = await cache.acquire(registered, TOKENS), await cache.reserve(registered, TOKENS, boundary=32)
        with pytest.warns(ResourceWarning, match="AsyncHit leased"):
            del hit
        with pytest.warns(ResourceWarning, match="AsyncUnit open"):
            del unit


def test_nothing_held_is_nothing_to_tell(hitting):
    """Released hits, finished units, misses, and all whose connection has ended may be dropped in silence."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with Cache.open(hitting.path) as cache:
            registered = cache.register(layout())
            cache.acquire(registered, TOKENS).release()
            assert not cache.acquire(registered, TOKENS, minimum=40)
            cache.reserve(registered, TOKENS, boundary=32).abort()
            cache.reserve(registered, TOKENS, boundary=32).commit()
            kept = [cache.acquire(registered, TOKENS), cache.reserve(registered, TOKENS, boundary=32)]
        kept.clear()
        gc.collect()
    assert [str(one.message) for one in told if one.category is ResourceWarning] == []


AT_EXIT = """
import sys
from kvledger import Cache
from unit.client.fake import FakeDaemon, layout, requests
from unit.client.test_hit import TOKENS, acquired, fill, offer

daemon = FakeDaemon(sys.argv[1])
fill(daemon)
daemon.answers[requests.Acquire] = acquired(offer(32))
cache = Cache.open(daemon.path)
registered = cache.register(layout())
unit = cache.reserve(registered, TOKENS, boundary=32)
sys.kept = [cache.acquire(registered, TOKENS), unit]
sys.kept.append(sys.kept)
"""


def test_end_of_the_interpreter_is_no_drop(tmp_socket_dir):
    """What a program still holds when it ends is not told, and nothing fails while its modules are torn down."""
    path = ":".join(entry for entry in sys.path if entry)
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", AT_EXIT, str(tmp_socket_dir / "k.sock")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={"PYTHONPATH": path})
    assert (done.returncode, done.stderr) == (0, "")
