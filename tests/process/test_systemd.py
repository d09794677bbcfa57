"""The units under a real systemd: started by a connection, killed, hung, stopped, and with a store that is too small.

It is a systemd of its own in a machine of its own (`support.own_systemd`), which root has where cgroups are unified.
"""

from __future__ import annotations

import json
import time

import pytest

from docs.pages import blocks, shell_line
from support.own_systemd import own_systemd

pytestmark = pytest.mark.slow
UNIT = "kvledger.service"
SOCKET, TEAM_SOCKET = "/run/kvledger/kvledger.sock", "/run/kvledger-team-a/kvledger.sock"
STORE = """
from kvledger import Cache
from support.tiny import store, tiny_layout
with Cache.open("{1}") as cache:
    layout = cache.register(tiny_layout())
    for seed in range({0}):
        store(cache, layout, seed)
"""
CHECK = """
from kvledger import Cache
from support.tiny import check, tiny_layout
with Cache.open("{1}") as cache:
    layout = cache.register(tiny_layout())
    print(sum(check(cache, layout, seed) == 50 for seed in range({0})))
"""

TEAM = f"""
sockets = [{{name = "team-a", path = "{TEAM_SOCKET}"}}]
access = [
  {{tenant = "ops", right = "operator", socket = "kvledger.socket"}},
  {{tenant = "team-a", right = "writer", socket = "team-a"}},
]
"""
LOOPBACK = "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh', b'lo', 0x49))"
"""SIOCSIFFLAGS with IFF_UP, IFF_RUNNING and IFF_LOOPBACK: a fresh network namespace has its loopback down."""
BROWSE = "import urllib.request as web; print(web.urlopen('http://127.0.0.1:9465/', timeout=10).read().decode())"


@pytest.fixture(scope="module")
def machine():
    """A machine with the units installed, and nothing started."""
    with own_systemd() as made:
        (made.root / "etc/kvledger/kvledger.toml").write_text('memory_bytes = "64MiB"\narena_bytes = "1MiB"\n')
        yield made


@pytest.fixture
def serving(machine):
    """A daemon that has just begun, on an empty data directory, with no settings of an earlier test."""
    machine.run("systemctl", "stop", "kvledger.socket", UNIT)
    machine.run("systemctl", "reset-failed", code=None)
    machine.run("sh", "-c", f"rm -rf /run/systemd/system/{UNIT}.d /var/lib/kvledger/*")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "kvledger.socket")
    return machine


def drop_in(machine, *lines):
    """Change settings of the unit, and start it anew with them."""
    folder = machine.root / f"run/systemd/system/{UNIT}.d"
    folder.mkdir(parents=True)
    (folder / "test.conf").write_text("\n".join(("[Service]", *lines)) + "\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", UNIT)


def stored(machine, count, socket=SOCKET):
    """Store prompts as an engine does."""
    machine.run("python", "-c", STORE.format(count, socket))


def whole(machine, count, socket=SOCKET):
    """Return how many of so many prompts are hits with the right bytes; wrong ones are an error."""
    return int(machine.run("python", "-c", CHECK.format(count, socket)))


def restarted(machine, times):
    """Wait until systemd has started the service again so many times, and it is up."""
    machine.until(UNIT, "NRestarts", str(times))
    machine.until(UNIT, "ActiveState", "active")


def test_a_connection_starts_it(serving):
    """The socket is there before the daemon; who connects gets an answer, from a daemon without rights that is well."""
    assert serving.show(UNIT, "ActiveState") == "inactive"
    assert "incarnation 1" in serving.run("kvledger", "status")
    assert serving.show(UNIT, "ActiveState") == "active"
    assert serving.show(UNIT, "StatusText") == "serving at /run/kvledger/kvledger.sock"
    status = (serving.root / f"proc/{serving.show(UNIT, 'MainPID')}/status").read_text()
    assert "NoNewPrivs:\t1" in status
    assert "CapEff:\t0000000000000000" in status
    assert "Seccomp:\t2" in status
    owner = serving.run("stat", "-c", "%U %a", "/var/lib/kvledger", "/run/kvledger/kvledger.sock").split()
    assert owner == ["kvledger", "700", "kvledger", "660"]
    assert json.loads(serving.run("kvledger", "health", "--json"))["ok"]


def test_memory_outlives_a_kill(serving):
    """After SIGKILL systemd starts it again with its arenas, and every byte is there."""
    stored(serving, 20)
    arenas = int(serving.show(UNIT, "NFileDescriptorStore"))
    assert arenas > 2
    serving.run("systemctl", "kill", "--signal=KILL", UNIT)
    restarted(serving, 1)
    assert whole(serving, 20) == 20
    assert int(serving.show(UNIT, "NFileDescriptorStore")) == arenas
    assert "incarnation 2" in serving.run("kvledger", "status")


def test_a_daemon_that_hangs_is_killed_and_keeps_its_memory(serving):
    """Without progress the watchdog is not fed, systemd kills it and starts it again, with its arenas."""
    drop_in(serving, "WatchdogSec=2")
    stored(serving, 5)
    serving.run("systemctl", "kill", "--signal=STOP", UNIT)
    restarted(serving, 1)
    assert "Watchdog timeout" in serving.journal()
    assert whole(serving, 5) == 5


def test_what_a_stop_leaves_is_on_disk(serving):
    """A stop lets go of the arenas, and what only memory had was written first: the next start has all of it."""
    stored(serving, 5)
    serving.run("systemctl", "stop", UNIT)
    assert serving.show(UNIT, "NFileDescriptorStore") == "0"
    assert serving.show(UNIT, "Result") == "success"
    assert whole(serving, 5) == 5


def test_a_store_that_is_too_small_costs_misses_and_no_daemon(serving):
    """What systemd does not hold is gone after a kill: by event, without a wrong byte, and the daemon goes on."""
    drop_in(serving, "FileDescriptorStoreMax=2")
    stored(serving, 60)
    arenas = json.loads(serving.run("kvledger", "status", "--json"))["counters"]["arenas"]
    assert arenas > 3
    assert serving.show(UNIT, "NFileDescriptorStore") == "2"
    serving.run("systemctl", "kill", "--signal=KILL", UNIT)
    restarted(serving, 1)
    assert whole(serving, 60) < 60
    stored(serving, 5)
    assert whole(serving, 5) == 5
    checked = json.loads(serving.run("kvledger", "check", "--socket", "--json").splitlines()[-1])
    assert checked["ok"], checked


def test_the_audit_unit_follows(serving):
    """The follower runs beside the daemon, within what its own unit allows it, and has told what happened."""
    stored(serving, 2)
    serving.run("systemctl", "start", "kvledger-audit.service")
    serving.until("kvledger-audit.service", "ActiveState", "active")
    answer = serving.run("kvledger", "audit", "objects", "--json", "--data", "/var/lib/kvledger")
    assert len(json.loads(answer.splitlines()[-1])["objects"]) == 10
    serving.run("systemctl", "stop", "kvledger-audit.service")


def test_the_page_unit_serves_on_loopback(serving):
    """A browser on the machine gets the page, from a unit that may listen at this one port only."""
    serving.run("python", "-c", LOOPBACK)
    serving.run("systemctl", "start", UNIT, "kvledger-page.service")
    end = time.monotonic() + 30
    while "<title>" not in (found := serving.run("python", "-c", BROWSE, code=None)):
        assert time.monotonic() < end, serving.journal()
        time.sleep(0.2)
    assert "kvledger</title>" in found
    serving.run("systemctl", "stop", "kvledger-page.service")


def test_a_reload_takes_settings_without_a_restart(serving):
    """`systemctl reload` has the daemon read its file again, and it is the same process afterwards."""
    serving.run("systemctl", "start", UNIT)
    pid, file = serving.show(UNIT, "MainPID"), serving.root / "etc/kvledger/kvledger.toml"
    before = file.read_text()
    file.write_text(before + "drill_seconds = 7\n")
    try:
        serving.run("systemctl", "reload", UNIT)
        end = time.monotonic() + 20
        while json.loads(serving.run("kvledger", "status", "--json"))["counters"]["drill_seconds"] != 7:
            assert time.monotonic() < end, serving.journal()
    finally:
        file.write_text(before)
    assert serving.show(UNIT, "MainPID") == pid


def test_what_the_page_types_enables_it(serving):
    """Behind `make install`, what docs/operations.md types starts socket, daemon and follower now and at each boot."""
    started = ("kvledger.socket", UNIT, "kvledger-audit.service")
    (block,) = [one for one in blocks("docs/operations.md") if "systemctl enable" in one.text]
    assert block.commands[0] == ["make", "install"]
    for line in block.typed[1:]:
        serving.run("sh", "-c", line)
    for unit in started:
        serving.until(unit, "ActiveState", "active")
        assert serving.run("systemctl", "is-enabled", unit).strip() == "enabled"
    serving.run("systemctl", "disable", "--now", *started)


def test_a_tenant_has_a_socket_of_its_own(serving):
    """What docs/security.md types gives a tenant a socket of systemd's, and what is stored there is its own."""
    file = serving.root / "etc/kvledger/kvledger.toml"
    before = file.read_text()
    file.write_text(before + TEAM)
    try:
        (block,) = [one for one in blocks("docs/security.md") if "kvledger@team-a.socket" in one.text]
        for line in block.typed:
            serving.run("sh", "-c", line)
        stored(serving, 3, TEAM_SOCKET)
        assert whole(serving, 3, TEAM_SOCKET) == 3
        assert whole(serving, 3) == 0
        told = json.loads(serving.run("kvledger", "tenants", "--json").splitlines()[-1])["tenants"]
        assert {row["name"]: row["objects"] > 0 for row in told} == {"ops": False, "team-a": True}
        assert serving.run("systemctl", "is-enabled", "kvledger@team-a.socket").strip() == "enabled"
    finally:
        file.write_text(before)
        serving.run("systemctl", "stop", "kvledger@team-a.socket", UNIT)
        serving.run("systemctl", "disable", "kvledger@team-a.socket")


def test_the_line_of_the_page_runs_it_without_a_unit(machine):
    """`systemd-run` as the page has it starts a daemon that survives a kill with its memory."""
    machine.run("systemctl", "stop", "kvledger.socket", UNIT)
    machine.run("sh", "-c", "rm -rf /var/lib/kvledger/* /run/kvledger/*")
    line = shell_line("README.md", "systemd-run").replace("--unit=kvledger", "--unit=tried")
    machine.run("sh", "-c", f"{line} --memory 64MiB")
    machine.until("tried.service", "ActiveState", "active")
    stored(machine, 3)
    machine.run("systemctl", "kill", "--signal=KILL", "tried.service")
    machine.until("tried.service", "NRestarts", "1")
    machine.until("tried.service", "ActiveState", "active")
    assert whole(machine, 3) == 3
    machine.run("systemctl", "stop", "tried.service")
