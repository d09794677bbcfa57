"""The systemd units: installed below a prefix, verified offline, and fit for what the daemon needs."""

from __future__ import annotations

import ctypes
import re
import shutil
import signal
import subprocess
import sys
import time
from configparser import ConfigParser
from pathlib import Path

import pytest

from kvledger import Cache
from kvledger.errors import KVLedgerError
from kvledger.testing import say_hello
from kvledgerd.exits import Exit
from kvledgerd.keeper.keeper import STORE_LIMIT
from kvledgerd.keeper.listener import SOCKET_NAME
from kvledgerd.keeper.policy import RestartPolicy
from kvledgerd.settings.loading import load
from kvledgerd.settings.table import Config
from support.formats import v4_layout
from support.tiny import prompt, store, tiny_layout

ROOT = Path(__file__).parents[2]
UNITS = ("kvledger.service", "kvledger.socket", "kvledger@.socket", "kvledger-audit.service", "kvledger-page.service")
WORST_EXPOSURE = {"kvledger.service": 1.0, "kvledger-audit.service": 1.0, "kvledger-page.service": 1.3}
"""Of 10; systemd itself calls anything below 2 safe, and the page has a port of loopback."""
_MDWE = 65  # PR_SET_MDWE, linux/prctl.h: what MemoryDenyWriteExecute sets on kernels that have it


def make(*words: str) -> None:
    """Run a target of the Makefile."""
    subprocess.run(["make", "-s", "-C", str(ROOT), *words], check=True, capture_output=True, timeout=60)


@pytest.fixture
def installed(tmp_path) -> Path:
    """A staging directory into which the units were installed, with a program in the place of kvledger."""
    make("install-units", f"DESTDIR={tmp_path}", "PREFIX=/opt/kvl", "SYSTEMD_VERSION=252")
    return tmp_path


def unit(name: str) -> ConfigParser:
    """Return a unit; of a key that is repeated the last value."""
    found = ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    found.optionxform = str
    found.read(ROOT / "ops" / "systemd" / name)
    return found


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze, which asks no running systemd for this."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze on this machine")
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=60, check=False)


def test_install_and_uninstall(installed):
    """Everything lies below the prefix and names it; uninstalling leaves nothing but the configuration."""
    units = installed / "opt/kvl/lib/systemd/system"
    assert {path.name for path in units.iterdir()} == set(UNITS)
    assert "ExecStart=/opt/kvl/bin/kvledger serve" in (units / "kvledger.service").read_text()
    assert "/usr/local" not in "".join(path.read_text() for path in units.iterdir())
    config = installed / "etc/kvledger/kvledger.toml"
    assert load(config, environment={}).memory_bytes == 1 << 30
    config.write_text("# mine\n")
    make("install-units", f"DESTDIR={installed}", "PREFIX=/opt/kvl", "SYSTEMD_VERSION=254")
    assert config.read_text() == "# mine\n"
    dropped_in = (units / "kvledger.service.d/preserve.conf").read_text()
    assert "FileDescriptorStorePreserve=yes" in dropped_in
    assert f"RestartMaxDelaySec={RestartPolicy().longest_s:.0f}s" in dropped_in
    make("uninstall", f"DESTDIR={installed}", "PREFIX=/opt/kvl")
    assert [path for path in installed.rglob("*") if path.is_file()] == [config]


@pytest.mark.parametrize("name", UNITS)
def test_units_pass_verification_without_a_word(installed, name):
    """Every key of a unit is one that systemd knows, and it has nothing to say about it."""
    folder = installed / "opt/kvl/lib/systemd/system"
    for path in folder.glob("*.service"):
        path.write_text(path.read_text().replace("/opt/kvl/bin/kvledger", sys.executable))
    found = analyze("verify", "--man=no", str(folder / name))
    if "Failed to initialize manager" in found.stderr:
        pytest.skip(f"systemd-analyze can not verify here: {found.stderr.strip()}")
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize("name", WORST_EXPOSURE)
def test_units_are_hardened(installed, name):
    """By systemd's own count hardly anything is exposed."""
    found = analyze(
        "security", "--offline=true", "--no-pager", str(installed / "opt/kvl/lib/systemd/system" / name)
    ).stdout
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", found)
    if exposure is None:
        pytest.skip("this systemd-analyze judges no unit offline")
    assert float(exposure[1]) <= WORST_EXPOSURE[name], found


def test_units_say_what_the_daemon_expects():
    """Names, paths, limits and exit codes of the units are those of the code."""
    service, listener = unit("kvledger.service")["Service"], unit("kvledger.socket")["Socket"]
    assert listener["FileDescriptorName"] == SOCKET_NAME
    assert listener["ListenStream"] == str(Config().socket)
    assert f"/var/lib/{service['StateDirectory']}" == str(Config().data_dir)
    assert int(service["FileDescriptorStoreMax"]) == STORE_LIMIT
    assert int(service["LimitNOFILE"]) >= 4 * Config().uid_connections + 2 * STORE_LIMIT
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == {*RestartPolicy().final_codes} - {0}
    assert int(service["TimeoutStopSec"]) > Config().stop_seconds + Config().stop_write_seconds
    assert Exit.DAMAGED in map(int, unit("kvledger-audit.service")["Service"]["RestartPreventExitStatus"].split())


@pytest.mark.slow
def test_the_daemon_and_its_helpers_keep_within_their_unit(tmp_socket_dir, tmp_path):
    """Serving, a snapshot and the follower use no system call that the filter takes away, nor writable code."""
    if shutil.which("strace") is None:
        pytest.skip("there is no strace on this machine")
    data, listening, calls = tmp_path / "data", tmp_socket_dir / "s", tmp_path / "calls"
    words = ["serve", "--no-keeper", "--data", str(data), "--socket", str(listening), "--memory", "64MiB"]
    environment = {"KVLEDGER_SNAPSHOT_EVENTS": "20", "KVLEDGER_AUDIT_FOLLOW": "true", "PATH": "/usr/bin:/bin"}
    command = ["strace", "-f", "-qq", "-o", str(calls), sys.executable, "-m", "kvledgerd.cli", *words]
    with subprocess.Popen(command, env=environment, preexec_fn=_deny, stderr=subprocess.DEVNULL) as process:  # noqa: PLW1509  one call of prctl
        try:
            _serve(listening, data, process)
        finally:
            pid = int((data / "log" / "lock").read_text())
            subprocess.run(["kill", f"-{signal.SIGTERM.value}", str(pid)], check=True)
            assert process.wait(60) == 0
    used = set(re.findall(r"^\d+ +(\w+)\(", calls.read_text(), re.MULTILINE))
    if Path("/proc/self/uid_map").exists() and "fchown" in used:
        used.remove("fchown")  # SQLite's, and only root's
    assert {"memfd_create", "fdatasync", "setpriority"} <= used
    assert used <= _system_calls("@default") | _system_calls("@system-service") - _system_calls("@privileged")


def _deny() -> None:
    ctypes.CDLL(None).prctl(_MDWE, 1, 0, 0, 0)


def _serve(listening: Path, data: Path, process: subprocess.Popen) -> None:
    """Let it do a bit of everything, and wait for a snapshot and the follower."""
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        try:
            say_hello(listening, 1)
            break
        except (KVLedgerError, OSError):
            time.sleep(0.1)
    with Cache.open(listening, name="traced") as cache:
        layout = cache.register(tiny_layout())
        for number in (1, 3):
            store(cache, layout, number)
            cache.offload(layout, prompt(number), boundary=50, drop_memory=True)
        with cache.acquire(layout, [*prompt(1), 9]) as hit:
            assert hit.tokens == 50
        split, by_rows = cache.register(v4_layout()), cache.register(v4_layout(split=False))
        with cache.reserve(split, list(range(256)), boundary=256) as unit:
            for slot in unit.objects:
                unit.put(slot, bytes(slot.length))
        with cache.acquire(by_rows, list(range(257))) as hit:
            assert hit.tokens == 256  # converted by the tensor worker
    while time.monotonic() < end and not (list(data.glob("snapshots/*.snapshot")) and (data / "audit.db").exists()):
        time.sleep(0.1)
    assert list(data.glob("snapshots/*.snapshot"))


def _system_calls(group: str) -> set[str]:
    """Return the system calls of one of systemd's groups."""
    lines = [line.strip() for line in analyze("syscall-filter", "--no-pager", group).stdout.splitlines()[1:]]
    names = [line for line in lines if line and not line.startswith("#")]
    return {one for name in names for one in (_system_calls(name) if name.startswith("@") else {name})}
