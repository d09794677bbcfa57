"""`kvledger evict` and `kvledger export` on a running daemon: what goes, what stays and why, and bytes as files."""

import json
import os
import signal

import pytest
import xxhash

from kvledger import Cache
from kvledger.testing import Daemon
from support import commands
from support.damaged_memory import damage
from support.tiny import check, content, prompt, store, tiny_layout

TOKENS = 50


@pytest.fixture(scope="module")
def daemon():
    """A daemon whose fourth prompt lies on disk alone."""
    with Daemon(memory="64MiB") as running:
        with Cache.open(running.socket, name="engine") as cache:
            layout = cache.register(tiny_layout())
            for seed in range(1, 5):
                store(cache, layout, seed)
            cache.offload(layout, prompt(4), boundary=TOKENS, drop_memory=True)
        yield running


def typed(*words, code=0):
    """Run a command that has to end with `code`; return what it says."""
    found = commands.kvledger(*map(str, words))
    assert found.returncode == code, found.stderr
    return found.stdout if code in {0, 65} else found.stderr


def evict(daemon, *words):
    """Evict, and return the object on the last line."""
    return json.loads(typed("evict", *words, "--socket", daemon.socket, "--json").splitlines()[-1])


def last_of(daemon, seed):
    """Return the name of the object with which a prompt ends: its snapshot."""
    with Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        objects = cache.describe(layout, prompt(seed), boundary=TOKENS).objects
    (tail,) = (one for one in objects if one.group == 1)
    return f"{tail.cell}.{tail.slot}"


def test_what_is_leased_stays_and_the_rest_goes(daemon):
    """A dry run and the deed agree; the leased prompt is named as leased and reads back, another one is a miss."""
    with Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        with cache.acquire(layout, [*prompt(1), 9]) as hit:
            assert hit.tokens == TOKENS
            asked = ("--kind", "uncompressed_tail", "--layout", layout.digest.hex()[:8], "--tier", "memory")
            told = evict(daemon, *asked, "--dry-run")
            shown = typed("evict", *asked, "--dry-run", "--socket", daemon.socket)
            went = evict(daemon, *asked)
            assert (went | {"dry_run": True}) == told
            assert (went["objects"], went["leased"], went["memory_bytes"], went["disk_bytes"]) == (2, 1, 16384, 0)
            assert "2 objects would go" in shown
            assert "stayed: 1 leased" in shown
        assert check(cache, layout, 1) == TOKENS
        assert check(cache, layout, 2) == 0
        for seed in (2, 3):
            store(cache, layout, seed)


def test_what_is_to_go_has_to_be_said(daemon):
    """Without a word on what, and with `--all` beside a choice, nothing is evicted."""
    for words in ((), ("--all", "--kind", "SWA_WINDOW")):
        assert "what is to go has to be said" in typed("evict", *words, "--socket", daemon.socket, code=78)


@pytest.mark.parametrize(("seed", "place"), [(1, "memory"), (4, "disk")])
def test_a_prefix_is_exported_as_it_was_handed_out(daemon, tmp_path, seed, place):
    """Each object is a file with the bytes that were committed, and the manifest says where it lies in the prompt."""
    target = tmp_path / "report"
    typed("export", last_of(daemon, seed), target, "--data", daemon.data_dir)
    manifest = json.loads((target / "manifest.json").read_text())

    assert manifest["position"] == TOKENS
    assert len(manifest["hashes"]) == TOKENS // 16
    assert manifest["layout"]["model"] == "tiny"
    assert [one["first_token"] for one in manifest["objects"]] == [0, 16, 32, TOKENS, TOKENS]
    for one in manifest["objects"]:
        data = (target / one["file"]).read_bytes()
        first = one["first_token"] if one["group"] == "tail" or not one["at_boundary"] else 48
        assert data == content(seed, one["group"], first, one["length"])
        assert (one["read_from"], one["wrong"]) == (place, "")
        assert xxhash.xxh3_128_hexdigest(data) == one["fingerprint"]
    assert (target.stat().st_mode & 0o777) == 0o700


def test_an_export_names_what_is_damaged(daemon, tmp_path):
    """A byte that has changed in an arena is exported as it is, and the command ends with 65 and names the object."""
    name = last_of(daemon, 3)
    assert damage(daemon.pid, b"prompt 3 tail at")
    said = typed("export", name, tmp_path / "report", "--data", daemon.data_dir, code=65)
    assert f"{name} (tail): the bytes are not those that were committed" in said


def test_an_export_is_for_who_asked_for_it(daemon, tmp_path):
    """State of a model tells what its prompt said: no file is for others, wherever it lies."""
    target = tmp_path / "report"
    target.mkdir(mode=0o755)
    typed("export", last_of(daemon, 2), target, "--data", daemon.data_dir)
    assert {path.stat().st_mode & 0o777 for path in target.iterdir()} == {0o600}


def test_an_export_never_mixes_with_other_files(daemon, tmp_path):
    """A directory that holds something is refused, and an object that is not there is named."""
    (tmp_path / "mine").write_text("x")
    assert "is not empty" in typed("export", "1.0", tmp_path, "--data", daemon.data_dir, code=78)
    assert "nothing is stored as 999.0 now" in typed(
        "export", "999.0", tmp_path / "new", "--data", daemon.data_dir, code=78
    )


def test_without_a_daemon_memory_is_named_as_gone(tmp_path):
    """After the daemon has ended, what only memory had has no bytes, and the export says so of each object."""
    with Daemon(memory="64MiB", directory=tmp_path / "d", keeper=False) as running:
        with Cache.open(running.socket) as cache:
            store(cache, cache.register(tiny_layout()), 1)
        name = last_of(running, 1)
        os.kill(running.pid, signal.SIGKILL)
    said = typed("export", name, tmp_path / "report", "--data", running.data_dir, "--json", code=65)
    assert json.loads(said.splitlines()[-1])["wrong"] == 5
