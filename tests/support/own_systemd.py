"""A systemd of its own, for tests of units: in namespaces, on a root that nobody else has, gone with its first process.

A careless one would empty the machine's /tmp, so nothing is left to care: `own_systemd.sh` builds the root and checks
it, and before the word to go on is given it is looked at from outside. Who works inside holds its namespaces by their
descriptors, since a number of a process that has ended may be another's. What can not be had is a skip with its reason.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("own_systemd.sh")
_PROGRAMS = ("/lib/systemd/systemd", "/usr/bin/nsenter", "/usr/bin/unshare", "/usr/bin/make")
_NAMESPACES = {"mnt": "mount", "pid": "pid", "cgroup": "cgroup", "uts": "uts", "ipc": "ipc", "net": "net"}
_FOLDERS = ("client", "kernels", "storage", "daemon", "tests")


class OwnSystemd:
    """A machine in a machine.

    Args:
        pid: Its first process, as it is called outside.
    """

    def __init__(self, pid: int) -> None:
        self._root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._namespaces = {name: os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind, name in _NAMESPACES.items()}

    @property
    def root(self) -> Path:
        """Its root."""
        return Path(f"/proc/self/fd/{self._root}")

    def close(self) -> None:
        """Let its namespaces go."""
        for descriptor in (self._root, *self._namespaces.values()):
            os.close(descriptor)

    def run(self, *words: str, code: int | None = 0, seconds: float = 60) -> str:
        """Run a program inside, and return what it prints; it has to end with `code` if that is given."""
        held = self._namespaces
        entered = [f"--{name}=/proc/self/fd/{descriptor}" for name, descriptor in held.items()]
        found = subprocess.run(
            ["nsenter", *entered, "--", *words],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
            cwd="/",
            pass_fds=tuple(held.values()),
        )
        assert code is None or found.returncode == code, f"{words}: {found.stdout}{found.stderr}{self.journal()}"
        return found.stdout

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def until(self, unit: str, name: str, value: str, seconds: float = 30) -> None:
        """Wait until a property of a unit has a value."""
        end = time.monotonic() + seconds
        while (found := self.show(unit, name)) != value:
            assert time.monotonic() < end, f"{name} of {unit} is {found}, not {value}: {self.journal()}"
            time.sleep(0.05)

    def wait_booted(self, seconds: float = 30) -> None:
        """Wait until systemd answers."""
        end = time.monotonic() + seconds
        while self.run("systemctl", "is-system-running", code=None).strip() not in {"running", "degraded"}:
            if time.monotonic() > end:
                pytest.skip(f"systemd does not come up in a machine of its own here: {self.journal()}")
            time.sleep(0.05)

    def journal(self) -> str:
        """Return what systemd and the services said last."""
        return self.run("journalctl", "--no-pager", "--lines=60", "--output=cat", code=None)


@contextlib.contextmanager
def own_systemd() -> Iterator[OwnSystemd]:
    """Start a machine, and end it."""
    _require()
    with _empty_folder() as work, tempfile.NamedTemporaryFile(dir="/tmp") as marker, _cgroup() as group:
        process = _started(work, marker.name, group)
        try:
            with contextlib.closing(OwnSystemd(_trusted(process, marker.name))) as machine:
                machine.wait_booted()
                yield machine
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """End the first process, which takes all others of its namespace with it, and see it reaped."""
    for child in _children(process.pid):
        os.kill(child, signal.SIGKILL)
    try:
        process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def _empty_folder() -> Iterator[str]:
    """Make a folder that is empty to the end: what is mounted on it is mounted inside, and it is removed as it was."""
    work = tempfile.mkdtemp(prefix="kvl-systemd-")
    try:
        yield work
    finally:
        Path(work).rmdir()


def _require() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a machine in a machine")
    missing = [name for name in _PROGRAMS if not Path(name).exists()]
    if missing:
        pytest.skip(f"there is no {missing[0]} on this machine")


@contextlib.contextmanager
def _cgroup() -> Iterator[Path]:
    """Make a group for the machine, which its systemd takes for the root; it is empty when the machine is gone."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    found = [words[4] for words in mounts if words[words.index("-") + 1] == "cgroup2"]
    if not found:
        pytest.skip("there is no unified cgroup hierarchy on this machine")
    group = Path(found[0]) / f"kvledger-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error}")
    try:
        yield group
    finally:
        _emptied(group)


def _emptied(group: Path) -> None:
    end = time.monotonic() + 10
    while "populated 1" in (group / "cgroup.events").read_text() and time.monotonic() < end:
        time.sleep(0.02)
    for folder, _, _ in os.walk(group, topdown=False):
        Path(folder).rmdir()


def _started(work: str, marker: str, group: Path) -> subprocess.Popen[str]:
    unshared = (
        "--mount",
        "--propagation=private",
        "--pid",
        "--fork",
        "--kill-child",
        "--cgroup",
        "--uts",
        "--ipc",
        "--net",
    )
    packages = [str(Path(path).resolve()) for path in sys.path if path.endswith("site-packages")]
    paths = ":".join([*(str(ROOT / folder) for folder in _FOLDERS), *packages])
    script = ["sh", str(SCRIPT), work, str(ROOT), marker, sys.base_prefix, paths]
    join = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
    return subprocess.Popen(
        ["sh", "-c", join, "sh", "unshare", *unshared, *script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _trusted(process: subprocess.Popen[str], marker: str) -> int:
    """Look at the machine from outside, let it start if all is as it has to be, and return its first process."""
    said = ""
    for line in process.stdout:
        if line == "ready\n":
            break
        said += line
    else:
        pytest.skip(f"no machine in this machine: {said.strip()}")
    (first,) = _children(process.pid)
    inside, outside = Path(f"/proc/{first}/root"), Path("/")
    for folder in ("", "tmp", "var/tmp", "run", "dev", "etc/systemd/system"):
        one, other = (root / folder for root in (inside, outside))
        assert one.stat().st_dev != other.stat().st_dev, f"/{folder} is the machine's own"
    assert not (inside / marker.lstrip("/")).exists()
    probe = inside / "tmp" / "probe"
    probe.touch()
    assert not (Path("/tmp") / "probe").exists()
    probe.unlink()
    process.stdin.write("go\n")
    process.stdin.flush()
    return first


def _children(pid: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
