"""Rules of access through a real daemon: several sockets, several users, three rights, and rules that change."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvledger import Cache, Kind, arenas
from kvledger.absence import AbsentError
from kvledger.errors import KVLedgerError, NotFoundError
from kvledger.testing import Daemon, say_hello
from kvledgerd.keeper.child import spawn
from kvledgerd.keeper.listener import listen
from support import commands
from support.daemon_log import logged
from support.tiny import check, prompt, store, tiny_layout
from support.users import as_user, in_child, only_root
from support.world import group, layout

pytestmark = only_root

READER, WRITER, GROUP, STRANGER = 4001, 4002, 4100, 4999
TOKENS = 50


OPS = '{tenant = "ops", right = "operator", socket = "kvledger.socket", uid = 0}'
RULES = f"""[
  {OPS},
  {{tenant = "red", right = "reader", socket = "red", uid = [{READER}, 4003]}},
  {{tenant = "red", right = "writer", socket = "red", uid = {WRITER}}},
  {{tenant = "red", right = "writer", socket = "red", gid = {GROUP}}},
  {{tenant = "blue", right = "writer", socket = "blue"}},
]"""


def sockets(folder: Path) -> str:
    """Return a setting: a socket for each of two tenants, which everybody may open."""
    rows = (f'{{name = "{name}", path = "{folder}/{name}.sock", mode = "0666"}}' for name in ("red", "blue"))
    return f"[{', '.join(rows)}]"


@pytest.fixture(scope="module")
def folder():
    """A folder in which everybody may look for sockets, with a short path."""
    with tempfile.TemporaryDirectory(prefix="kvl-", dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture(scope="module")
def daemon(folder):
    """A daemon with two tenants and an operator, whose rules stand in a file."""
    (folder / "rules.toml").write_text(f"access = {RULES}\n")
    settings = {"arena_bytes": "1MiB", "sockets": sockets(folder)}
    with Daemon(memory="16MiB", directory=folder, settings=settings, config=folder / "rules.toml") as running:
        yield running


def opened(folder, name: str, uid: int, gid: int = 0, groups=(), **more) -> Cache:
    """Return a cache that this user opened at this socket."""
    with as_user(uid, gid, groups):
        return Cache.open(folder / f"{name}.sock", staging_bytes=1 << 17, **more)


def test_the_first_rule_that_matches_says_what_a_user_may_do(daemon, folder):
    """A writer stores, a reader of the same tenant reads it and can not store; a group makes a writer of a stranger."""
    with closing(opened(folder, "red", WRITER)) as writer, closing(opened(folder, "red", READER)) as reader:
        store(writer, writer.register(tiny_layout()), 1)
        layout = reader.register(tiny_layout())
        assert check(reader, layout, 1) == TOKENS
        with pytest.raises(NotFoundError, match="no such thing for this caller"):
            store(reader, layout, 2)
    with closing(opened(folder, "red", STRANGER, 1, (7, GROUP))) as member:
        store(member, member.register(tiny_layout()), 3)
    with closing(opened(folder, "red", READER, GROUP)) as both, pytest.raises(NotFoundError):
        store(both, both.register(tiny_layout()), 4)


def test_whom_no_rule_is_about_is_let_in_nowhere(daemon, folder):
    """A stranger is told only what it is itself, before it is told anything of the cache."""
    with pytest.raises(NotFoundError, match=f"nothing here for uid {STRANGER} and gid 1"):
        opened(folder, "red", STRANGER, 1)
    with pytest.raises(NotFoundError, match="nothing here for uid 0"):
        opened(folder, "red", 0)


def test_who_may_not_open_a_socket_is_told_that(daemon):
    """Where the file system keeps a user out, the error says so, and does not ask for a daemon to be started."""
    with as_user(STRANGER, 1), pytest.raises(AbsentError, match=r"may not connect at .*denied.*join the group"):
        Cache.open(daemon.socket)


def test_the_same_user_is_another_tenant_at_another_socket(daemon, folder):
    """What lies behind one socket is not there behind the other, also for uid 0, which everybody is in a container."""
    with closing(opened(folder, "blue", 0)) as blue, closing(opened(folder, "red", 0, GROUP)) as red:
        layouts = blue.register(tiny_layout()), red.register(tiny_layout())
        store(blue, layouts[0], 11)
        assert (check(blue, layouts[0], 11), check(red, layouts[1], 11)) == (TOKENS, 0)


def test_what_a_reader_was_lent_can_not_be_written(daemon, folder):
    """The arena's descriptor is for reading, and another user can not open it again for more."""
    with closing(opened(folder, "red", WRITER)) as writer:
        store(writer, writer.register(tiny_layout()), 21)
    asked = [*prompt(21), 7]

    def reopen() -> None:
        kept: list[int] = []
        arenas.os = SimpleNamespace(close=kept.append)  # of this child, which ends in a moment
        with Cache.open(folder / "red.sock") as cache, cache.acquire(cache.register(tiny_layout()), asked) as hit:
            assert hit.tokens == TOKENS
        assert kept
        for descriptor in kept:
            assert os.pread(descriptor, 1, 0)
            with pytest.raises(OSError, match="Bad file"):
                os.pwrite(descriptor, b"x", 0)
            with pytest.raises(PermissionError):
                os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)

    assert in_child(READER, reopen) == 0


def test_an_operator_acts_for_every_tenant_and_nobody_else_does(daemon, folder):
    """An operator names the tenant that it acts for; who is none, or names one that is none, gets one answer."""
    with closing(opened(folder, "red", WRITER)) as writer:
        store(writer, writer.register(tiny_layout()), 31)
    with Cache.open(daemon.socket, tenant="red") as operator:
        layout = operator.register(tiny_layout())
        assert check(operator, layout, 31) == TOKENS
        assert operator.evict(layout, prompt(31), kind=Kind.UNCOMPRESSED_TAIL, boundary=TOKENS)
    with closing(opened(folder, "red", WRITER)) as writer:
        assert check(writer, writer.register(tiny_layout()), 31) < TOKENS
    answers = []
    for open_as in (
        lambda: Cache.open(daemon.socket, tenant="nobody"),
        lambda: opened(folder, "red", WRITER, tenant="blue"),
        lambda: opened(folder, "red", WRITER, tenant="nobody"),
    ):
        with pytest.raises(NotFoundError) as caught:
            open_as()
        answers.append((caught.value.message, caught.value.field, caught.value.remedy))
    assert len(set(answers)) == 1


def test_an_empty_list_of_weights_says_whose_it_is(daemon, folder):
    """An operator whose own tenant has no weights is told how to see another's, which it then does."""
    with closing(opened(folder, "red", WRITER)) as writer:
        writer.register(tiny_layout())
    listing = ("epoch", "list", "--socket", str(daemon.socket))
    assert "--tenant NAME lists another's" in commands.kvledger(*listing).stdout
    assert tiny_layout().model in commands.kvledger(*listing, "--tenant", "red").stdout


def test_a_hangup_reads_the_rules_again(daemon, folder):
    """SIGHUP takes new rules: who loses a right is cut off, who keeps it is not; a wrong file changes nothing."""
    file, third = folder / "rules.toml", '{tenant = "third", right = "reader"}'
    wrong = {f"[{OPS}, {OPS}]": "rule 2 never counts", f"{RULES[:-1]}{third}]": "set aside for 3"}
    with Cache.open(daemon.socket) as operator, closing(opened(folder, "red", READER)) as reader:
        reader.status()
        for text, why in wrong.items():
            file.write_text(f"access = {text}\n")
            assert why in hung_up(daemon)["why"]
        reader.status()
        file.write_text(f"access = {RULES.replace(str(READER), '4444')}\nmax_objects = 7\n")
        told = hung_up(daemon)
        assert (told["connections_ended"], told["need_restart"]) == (1, ["max_objects"])
        with as_user(READER), pytest.raises(KVLedgerError):
            reader.status()
        operator.status()
    file.write_text(f"access = {RULES}\n")
    assert hung_up(daemon)["connections_ended"] == 0


def hung_up(daemon) -> dict:
    """Send SIGHUP and return what the daemon says about it."""
    before = len(logged(daemon.output))
    os.kill(daemon.pid, signal.SIGHUP)
    end = time.monotonic() + 60
    while True:
        said = [line for line in logged(daemon.output)[before:] if "read again" in line["event"]]
        if said:
            return said[0]
        assert time.monotonic() < end
        time.sleep(0.01)


BIG = layout(group("C", Kind.COMPRESSED_KV, rows_per_page=16, page_bytes=64 << 10), block_tokens=16, model="big")


def filled(cache: Cache, registered, numbers: range) -> None:
    """Store one block of 64 KiB for each number."""
    for number in numbers:
        with cache.reserve(registered, prompt(number, 16), boundary=16) as unit:
            unit.put(unit.objects[0], bytes([number % 251]) * unit.objects[0].length)


def still_there(cache: Cache, registered, numbers: range) -> int:
    """Return of how many numbers every byte is there."""
    found = 0
    for number in numbers:
        with cache.acquire(registered, prompt(number, 16), leave=0) as hit:
            found += [bytes(handle.buffer) for handle in hit] == [bytes([number % 251]) * (64 << 10)]
    return found


@pytest.mark.slow
@pytest.mark.hostile("LO09")
def test_a_flood_takes_nothing_from_a_neighbour(daemon, folder):
    """A tenant that stores more than all memory evicts its own; all of another's is there, also after a kill."""
    mine, flood = range(8), range(300)
    with closing(opened(folder, "red", WRITER)) as red, closing(opened(folder, "blue", 0)) as blue:
        layouts = red.register(BIG), blue.register(BIG)
        filled(red, layouts[0], mine)
        filled(blue, layouts[1], flood)
        assert still_there(red, layouts[0], mine) == len(mine)
        assert 0 < still_there(blue, layouts[1], flood) < len(flood)
    daemon.kill()
    daemon.wait_ready()
    with closing(opened(folder, "red", WRITER)) as red:
        assert still_there(red, red.register(BIG), mine) == len(mine)


@pytest.mark.slow
def test_a_start_brings_back_of_each_tenant_what_was_hot(folder):
    """What a warm-up may bring is divided: one tenant with much on disk does not use up what is another's."""
    home, counts = folder / "warm", {"red": 40, "blue": 4}
    settings = {"arena_bytes": "1MiB", "sockets": sockets(home), "access": RULES, "warm_percent": 30}
    with Daemon(memory="16MiB", directory=home, settings=settings) as daemon:
        for tenant, count in counts.items():
            with Cache.open(daemon.socket, tenant=tenant) as cache:
                registered = cache.register(BIG)
                for number in range(count):
                    with cache.reserve(registered, prompt(number, 16), boundary=16, persist=True) as unit:
                        unit.put(unit.objects[0], bytes(64 << 10))
        daemon.stop()
        daemon.start()
        daemon.wait_ready()
        with Cache.open(daemon.socket) as operator:
            end = time.monotonic() + 20
            while operator.status().counters["warm_running"]:
                assert time.monotonic() < end
                time.sleep(0.05)
        found = {}
        for tenant in counts:
            with Cache.open(daemon.socket, tenant=tenant) as cache:
                found[tenant] = cache.status().counters["objects_in_memory"]
        assert found["blue"] == counts["blue"]
        assert 0 < found["red"] < counts["red"]


def test_sockets_of_a_service_manager_are_known_by_their_names(folder):
    """A daemon that is passed several sockets serves each under the rules for its name, whatever its path is."""
    home = folder / "activated"
    home.mkdir(mode=0o755)
    paths = {"kvledger.socket": home / "one", "red": home / "two", "blue": home / "three"}
    environment = {"KVLEDGER_SOCKETS": sockets(folder / "elsewhere"), "KVLEDGER_ACCESS": RULES}
    with ExitStack() as stack:
        listeners = [(name, stack.enter_context(listen(path, mode=0o666))) for name, path in paths.items()]
        words = [sys.executable, "-m", "kvledgerd", "--data", str(home / "data")]
        pid = spawn(words, [(name, one.fileno()) for name, one in listeners], os.environ | environment)
        try:
            say_hello(paths["kvledger.socket"], 30)
            with as_user(WRITER), Cache.open(paths["red"]) as red:
                store(red, red.register(tiny_layout()), 1)
            with as_user(WRITER), pytest.raises(NotFoundError):
                Cache.open(paths["kvledger.socket"])
        finally:
            os.kill(pid, signal.SIGTERM)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not (folder / "elsewhere").exists()


def test_what_lies_on_disk_is_for_the_daemon_alone(daemon):
    """Log, records, secret and snapshots can be read by no other user, whatever group it is in."""
    for path in (daemon.data_dir, *daemon.data_dir.rglob("*")):
        mode = path.stat().st_mode & 0o777
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_commands_for_operators_name_a_tenant(daemon, folder):
    """`--tenant` shows and fixes the quotas of a tenant; the operator's own stay as they are."""

    def asked(*words: str) -> dict:
        found = commands.kvledger("quota", *words, "--socket", str(daemon.socket), "--json")
        assert found.returncode == 0, found.stderr
        return {one["kind"]: one for one in json.loads(found.stdout.splitlines()[-1])["quotas"]}

    asked("set", "SWA_WINDOW", "2MiB", "--tenant", "red")
    assert asked("show", "--tenant", "red")["SWA_WINDOW"]["fixed"]
    assert not asked("show")["SWA_WINDOW"]["fixed"]
    assert asked("set", "SWA_WINDOW", "0", "--tenant", "red")


def test_a_tenant_is_told_of_itself_alone(daemon, folder):
    """What a neighbour does leaves no trace in the status of a tenant; an operator sees both."""
    with closing(opened(folder, "red", WRITER)) as red, closing(opened(folder, "blue", 0)) as blue:
        layouts = [cache.register(tiny_layout(name)) for cache, name in ((red, "mine"), (blue, "theirs"))]
        before = red.status()
        for number in range(100, 120):
            store(blue, layouts[1], number)
        with blue.acquire(layouts[1], [*prompt(100), 7]):
            assert red.status() == before
            with as_user(WRITER):
                words = ("--socket", str(folder / "red.sock"))
                assert "kvledger_live_bytes" in commands.kvledger("metrics", *words).stdout
                assert commands.kvledger("health", *words).returncode == 0
                assert "only operators" in commands.kvledger("top", *words).stderr
                assert commands.kvledger("status", *words).stdout.startswith(f"incarnation {before.incarnation}\n")
        assert (before.seq, before.digest) == (0, "")
        store(red, layouts[0], 120)
        assert red.status().counters["objects_in_memory"] > before.counters["objects_in_memory"]
        hits = red.status().counters["hash_hit_tokens"]
        assert check(red, layouts[0], 120) == TOKENS
        assert red.status().counters["hash_hit_tokens"] == hits + 48  # of whole blocks
        told = commands.kvledger("status", "--json", "--socket", str(daemon.socket), "--tenant", "red").stdout
        own = red.status().counters
        assert json.loads(told)["counters"] == own | {"engines": own["engines"] + 1}
        listed = commands.kvledger("tenants", "--json", "--socket", str(daemon.socket)).stdout
        both = {one["name"]: one for one in json.loads(listed)["tenants"]}
        assert set(both) == {"red", "blue", "ops"}
        assert both["red"]["objects"] == own["objects_in_memory"] < both["blue"]["objects"]
        with pytest.raises(NotFoundError):
            red.tenants()
    with Cache.open(daemon.socket) as operator:
        report = operator.status()
        assert report.digest
        assert report.counters["connections"] == 1
