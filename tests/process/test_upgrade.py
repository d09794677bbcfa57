"""An upgrade under the keeper: old code stores, its files are replaced, it is killed, and new code has its memory.

Nothing was released yet, so the old code is that of the commit which last changed the golden log: the oldest one whose
log this code reads. Where there is no history, or the golden log is just being changed, it is a copy of this code,
which shows the way and not the forms.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from kvledger import Cache
from kvledger.errors import KVLedgerError
from kvledger.testing import say_hello
from support.tiny import check, store, tiny_layout

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
FOLDERS = ("client", "kernels", "storage", "daemon")
GOLDEN = "tests/golden/log-1.json"
TOKENS = 50


def git(*words: str) -> bytes:
    """Run git in the checkout; empty where that can not be."""
    found = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    return found.stdout if found.returncode == 0 else b""


def install_old(place: Path) -> str:
    """Put the old code somewhere, and return which that is."""
    commit = git("log", "-1", "--format=%H", "--", GOLDEN).decode().strip()
    changing = git("diff", "--name-only", "HEAD", "--", GOLDEN)
    archive = git("archive", commit, *FOLDERS) if commit and not changing else b""
    if not archive:
        install(place)
        return "a copy"
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(place, filter="data")
    return commit


def install(place: Path) -> None:
    """Put this code in the place of whatever lies there."""
    for folder in FOLDERS:
        shutil.rmtree(place / folder, ignore_errors=True)
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__"))


def named(place: Path, name: str) -> None:
    """Have the code say its name when a daemon begins."""
    main = place / "daemon/kvledgerd/__main__.py"
    main.write_text(f'import sys\nsys.stderr.write("code: {name}\\n")\n' + main.read_text(encoding="utf-8"))


STORE = """
import sys, time
from pathlib import Path
from kvledger import Cache
from kvledger.errors import KVLedgerError
from kvledger.testing import say_hello
from support.tiny import prompt, store, tiny_layout
socket, end = Path(sys.argv[1]), time.monotonic() + 60
while time.monotonic() < end:
    try:
        say_hello(socket, 5)
        break
    except KVLedgerError:
        time.sleep(0.05)
with Cache.open(socket, name="old engine") as cache:
    layout = cache.register(tiny_layout())
    for seed in range(8):
        store(cache, layout, seed)
    cache.offload(layout, prompt(0), boundary=50, drop_memory=True)
"""


def wait_for(socket: Path, incarnation: int) -> None:
    """Wait until that incarnation answers."""
    end, why = time.monotonic() + 60, ""
    while time.monotonic() < end:
        try:
            if say_hello(socket, 5).incarnation == incarnation:
                return
        except KVLedgerError as error:
            why = str(error)
        time.sleep(0.05)
    pytest.fail(f"incarnation {incarnation} never answers: {why}")


def test_an_upgrade_loses_no_memory(tmp_path, tmp_socket_dir):
    """New code replays what the old one logged, adopts its arenas, and hands out all that an old engine stored."""
    place, data, socket, output = tmp_path / "code", tmp_path / "data", tmp_socket_dir / "s", tmp_path / "output"
    old = install_old(place)
    named(place, "old")
    paths = [str(place / folder) for folder in FOLDERS]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, str(ROOT / "tests")])}
    environment |= {"KVLEDGER_DISK_WRITE": "asked", "KVLEDGER_WARM_PERCENT": "0"}
    command = [sys.executable, "-m", "kvledgerd.cli", "serve", "--data", str(data), "--socket", str(socket)]
    with output.open("wb") as errors:
        kept = subprocess.Popen([*command, "--memory", "64MiB"], env=environment, stderr=errors)
    try:
        subprocess.run([sys.executable, "-c", STORE, str(socket)], env=environment, check=True, timeout=90)
        install(place)
        named(place, "new")
        os.kill(int((data / "log" / "lock").read_text(encoding="ascii")), signal.SIGKILL)
        wait_for(socket, 2)
        with Cache.open(socket, name="new engine") as cache:
            layout = cache.register(tiny_layout())
            assert [check(cache, layout, seed) for seed in range(8)] == [TOKENS] * 8
            store(cache, layout, 9)
            assert check(cache, layout, 9) == TOKENS
        said = output.read_text(encoding="utf-8")
        assert said.index("code: old") < said.index("code: new"), f"from {old}"
    finally:
        kept.terminate()
        assert kept.wait(60) == 0
