"""Epochs end to end: the command line, a client and the audit, on a real daemon that is killed in between."""

import json
import os

import pytest

from kvledger import Cache, EpochState
from kvledger.errors import CallerError, EpochError, NotFoundError
from kvledger.testing import Daemon
from support import commands
from support.tiny import prompt, store, tiny_layout

TOKENS = 50
MODEL = tiny_layout().model


@pytest.fixture(scope="module")
def daemon():
    """A daemon that accepts layouts without weights."""
    with Daemon(memory="64MiB", settings={"allow_unpinned": True}) as running:
        yield running


def kvledger(*words, code=0):
    """Run a command that has to end with `code`, and return what it says."""
    found = commands.kvledger(*map(str, words))
    assert found.returncode == code, found.stderr
    return found.stdout if code == 0 else found.stderr


def epoch(daemon, *words):
    """Run ``kvledger epoch`` in its machine form and return the object on its last line."""
    return json.loads(kvledger("epoch", *words, "--socket", daemon.socket, "--json").splitlines()[-1])


def test_weights_from_their_first_layout_to_their_retirement(daemon):
    """A canary is announced, stores and replaces what was active; retired weights miss, before and after a kill."""
    old, new = tiny_layout(weights="one"), tiny_layout(weights="two")
    with Cache.open(daemon.socket, name="serving") as cache:
        first = cache.register(old)
        store(cache, first, 1)
        cache.offload(first, prompt(1), boundary=TOKENS)
        assert epoch(daemon, "canary", MODEL, "two", "--share", 20)["before"] is None
        second = cache.register(new)
        store(cache, second, 1)
        standing = [(e.weights, e.state, e.share) for e in cache.epochs() if e.model == MODEL]
        assert standing == [("one", "active", 100), ("two", "canary", 20)]
        done = epoch(daemon, "activate", MODEL, "two", "--share", 100)
        assert done == {"before": "canary", "drained": "one", "invalid": 0}
        with pytest.raises(EpochError, match="draining"):
            cache.reserve(first, prompt(2), boundary=TOKENS)
        with cache.acquire(first, [*prompt(1), 9]) as hit:
            before = [bytes(handle.buffer) for handle in hit]
            assert epoch(daemon, "retire", MODEL, "one")["invalid"] == len(before) > 0
            assert [bytes(handle.buffer) for handle in hit] == before
        daemon.kill()
        daemon.wait_ready()
        with cache.acquire(first, [*prompt(1), 9]) as gone:
            assert not gone
            assert "epoch_retired" in gone.why
        with cache.acquire(second, [*prompt(1), 9]) as hit:
            assert hit.tokens == TOKENS
        listed = {e["weights"]: e["state"] for e in epoch(daemon, "list")["epochs"] if e["model"] == MODEL}
        assert listed == {"one": "retired", "two": "active"}
    told = json.loads(kvledger("audit", "epochs", "--data", daemon.data_dir, "--json").splitlines()[-1])["epochs"]
    told = [e for e in told if e["model"] == MODEL and e["what"] != "layout"]
    assert [(e["weights"], e["what"]) for e in told] == [
        ("one", "active"),
        ("two", "canary"),
        ("one", "draining"),
        ("two", "active"),
        ("one", "retired"),
    ]
    assert told[-1]["who"].startswith("kvledger epoch (uid ")
    assert f"uid {os.getuid()}" in told[-1]["who"]


def test_the_commands_tell_people_what_happened(daemon):
    """The list is a table, a change is a sentence, and a misspelt one is refused with what to do."""
    with Cache.open(daemon.socket) as cache:
        cache.register(tiny_layout(name="spoken", weights="a"))
    table = kvledger("epoch", "list", "--socket", daemon.socket)
    assert "spoken" in table
    said = kvledger("epoch", "drain", "spoken", "a", "--socket", daemon.socket)
    assert said == "spoken with weights a is draining, was active\n"
    kernel = ("epoch", "retire", "spoken", "a", "--socket", daemon.socket, "--kernel")
    assert "there are torch.contiguous:1" in kvledger(*kernel, "torch.contigous:1", code=78)
    said = kvledger(*kernel, "torch.contiguous:1")
    assert said == "spoken with weights a: kernel ABI torch.contiguous:1 is retired; 0 objects invalid\n"
    refused = kvledger("epoch", "activate", "spoken", "typo", "--socket", daemon.socket, code=78)
    assert "kvledger epoch list" in refused
    refused = kvledger("epoch", "retire", "spoken", "a", "--kernel", "plain", "--socket", daemon.socket, code=78)
    assert "is no kernel ABI" in refused


def test_what_a_client_gets_wrong_is_said_by_name(daemon):
    """A word that is no state, a share beyond all and weights that nobody knows are errors of kvledger's own."""
    with Cache.open(daemon.socket) as cache:
        cache.register(tiny_layout(name="wrong", weights="a"))
        with pytest.raises(CallerError, match="is no state of an epoch"):
            cache.set_epoch("wrong", "a", "paused")
        with pytest.raises(CallerError):
            cache.set_epoch("wrong", "a", EpochState.ACTIVE, share=101)
        with pytest.raises(NotFoundError):
            cache.set_epoch("wrong", "b", EpochState.RETIRED)


def test_unnamed_weights_end_with_their_engine(daemon):
    """What an engine stores without naming its weights is found by it alone, and by nobody after it or a restart."""
    unnamed = tiny_layout(name="unnamed", weights="")
    with Cache.open(daemon.socket, name="first") as cache, Cache.open(daemon.socket, name="second") as other:
        layout, foreign = cache.register(unnamed), other.register(unnamed)
        store(cache, layout, 1)
        with cache.acquire(layout, [*prompt(1), 9]) as hit:
            assert hit.tokens == TOKENS
        with other.acquire(foreign, [*prompt(1), 9]) as miss:
            assert "weights_digest: not named" in miss.why
        with pytest.raises(EpochError):
            cache.offload(layout, prompt(1), boundary=TOKENS)
        daemon.kill()
        daemon.wait_ready()
        with cache.acquire(layout, [*prompt(1), 9]) as gone:
            assert not gone
