"""A daemon with a lossy tier: what comes back after a restart, to whom, how far off, and what is told of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kvledger import Cache
from kvledger.testing import Daemon
from kvledger.verdict import Exactness
from kvledgerd.cli import main
from kvledgerd.core.copies.precisions import Precision
from support.lossy import END, PROMPT, floats, lossy_layout, within_bound

SETTINGS = {"arena_bytes": "1MiB", "disk_bytes": "64MiB", "disk_write": "asked", "disk_precision": "COMPRESSED_KV=e4m3"}


@pytest.fixture
def daemon():
    """Give a daemon that quantises rows on their way to disk."""
    with Daemon(memory="64MiB", settings=SETTINGS) as running:
        yield running


def bf16(rng, size):
    """Return numbers of many sizes in bf16, as bytes."""
    values = rng.normal(size=size // 2) * 10.0 ** rng.integers(-8, 8, size // 2)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()


def store(cache, known, tokens=PROMPT, **fields):
    """Commit noise and return it by group and first token."""
    rng, written = np.random.default_rng(3), {}
    with cache.reserve(known, tokens, boundary=END, **fields) as unit:
        for slot in unit.objects:
            if not slot.present:
                written[slot.group, slot.first_token] = data = bf16(rng, slot.length)
                unit.put(slot, data)
    return written


def said(capsys, *words):
    """Return what a command answers to a program."""
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


def test_a_restart_leaves_an_approximation_for_those_who_accept_it(daemon, capsys):
    """Who asks for exact bytes misses, and is told why; the others get numbers within the bound, and audit says so."""
    with Cache.open(daemon.socket, name="writer") as cache:
        known = cache.register(lossy_layout())
        store(cache, known, [7, *PROMPT], persist=True)
        assert not cache.status().counters["disk_quantised_records"]
        written = store(cache, known)
        cache.offload(known, PROMPT, boundary=END, drop_memory=True)
        assert cache.status().counters["disk_quantised_records"] == 2
    assert daemon.stop() == 0
    daemon.start()
    daemon.wait_ready()
    with Cache.open(daemon.socket, name="reader") as cache:
        known = cache.register(lossy_layout())
        miss = cache.acquire(known, PROMPT)
        assert not miss
        assert "layer 4 BYTES C (COMPRESSED_KV) lossy" in miss.why
        with cache.acquire(known, PROMPT, approx=True) as hit:
            assert (hit.tokens, hit.exactness) == (END, Exactness.APPROX)
            read = {(handle.group, handle.first_token): bytes(handle.buffer) for handle in hit}
        assert not cache.acquire(known, PROMPT)
        assert len(store(cache, known)) == 2
        with cache.acquire(known, PROMPT) as hit:
            assert (hit.tokens, hit.exactness) == (END, Exactness.EXACT)
    for (group, first), data in read.items():
        if group == "S":
            assert data == written[group, first]
        else:
            (before, _), (after, padding) = floats(written[group, first]), floats(data)
            assert within_bound(before, after, Precision.E4M3)
            assert not padding.any()
    check_story(daemon, capsys)


def check_story(daemon, capsys):
    """The states of the prefix, the life of a row and the explanation of the miss tell all of it."""
    daemon.stop()
    states = said(capsys, "audit", "states", 5, "--data", daemon.data_dir)["states"]
    told = [(one["state"], one["exactness"]) for one in states]
    assert told[:3] == [("full", "exact"), ("compressed", "approx"), ("full_restore", "approx")]
    assert told[-1] == ("full", "exact")
    assert main(["audit", "object", "4.0", "--data", str(daemon.data_dir)]) == 0
    life = capsys.readouterr().out
    assert all(word in life for word in ("as e4m3", "an approximation", "an exact copy takes its place"))
    assert main(["explain", "--last", "2", "--data", str(daemon.data_dir)]) == 0
    shown = capsys.readouterr().out
    assert "approx" in shown
    assert "cut by" in shown
    assert "lossy" in shown
    assert "compressed" in shown
