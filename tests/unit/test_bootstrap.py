"""The set-up of .venv: which interpreter is taken, and which torch from where."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path("python")


@pytest.fixture
def bootstrap():
    """Load scripts/bootstrap.py, which belongs to no package."""
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "scripts" / "bootstrap.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def machine(bootstrap, monkeypatch):
    """Return a function that pretends a machine and gives the arguments with which pip was then called."""

    def pretend(*, there=False, gpu=False, index=False):
        calls = []
        monkeypatch.setattr(bootstrap, "runs", lambda _: there)
        monkeypatch.setattr(bootstrap, "has_gpu", lambda: gpu)
        monkeypatch.setattr(bootstrap, "answers", lambda _: index)
        monkeypatch.setattr(bootstrap, "pip", lambda _, *arguments: calls.append(arguments))
        bootstrap.install_torch(PYTHON)
        return calls

    return pretend


def test_gpu_gets_plain_torch(machine, bootstrap):
    """A machine with a GPU gets torch from pip's own sources, even where the CPU index answers."""
    assert machine(gpu=True, index=True) == [(f"torch=={bootstrap.pinned('torch')}",)]


def test_cpu_index_is_added_where_it_answers(machine, bootstrap):
    """A machine without GPU gets the CPU index on top of the user's own sources."""
    assert machine(index=True) == [(f"torch=={bootstrap.pinned('torch')}", "--extra-index-url", bootstrap.CPU_INDEX)]


def test_silent_cpu_index_is_not_used(machine, bootstrap, capsys):
    """Where the CPU index does not answer, pip's own sources serve, and the user is told what that may mean."""
    assert machine() == [(f"torch=={bootstrap.pinned('torch')}",)]
    assert "does not answer" in capsys.readouterr().out


def test_torch_that_is_there_is_kept(machine):
    """An environment that has the pinned torch is left as it is."""
    assert machine(there=True, gpu=True, index=True) == []


def test_hanging_look_up_ends(bootstrap, monkeypatch):
    """An index whose name look-up hangs counts as silent after the time limit."""
    release = threading.Event()

    def hang(*_, **__):
        release.wait(60)
        raise OSError

    monkeypatch.setattr(bootstrap, "PROBE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(bootstrap.urllib.request, "urlopen", hang)
    started = time.monotonic()

    answered = bootstrap.answers(bootstrap.CPU_INDEX)
    release.set()

    assert not answered
    assert time.monotonic() - started < 30


def test_missing_pin_is_named(bootstrap):
    """A package without pin ends the set-up with a line that says what to add."""
    with pytest.raises(SystemExit, match="add a line nosuchpackage==VERSION"):
        bootstrap.pinned("nosuchpackage")


def test_failed_step_names_its_command(bootstrap, monkeypatch, capsys):
    """A step that fails ends the set-up with its status and its command."""
    monkeypatch.setattr(bootstrap, "make_environment", lambda _: PYTHON)
    monkeypatch.setattr(bootstrap, "install_torch", lambda _: subprocess.run(["false"], check=True))

    assert bootstrap.main([".venv"]) == 1
    assert "set-up failed with status 1 in: false" in capsys.readouterr().err


def test_constraints_are_exact_and_local_to_nobody():
    """Each pin names one exact version once, without a local version and without a path."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]

    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", pin)] == []
    assert len({pin.partition("==")[0] for pin in pins}) == len(pins) > 50


@pytest.mark.parametrize(
    ("running", "chosen"),
    [
        (("python3", "python3.13", "python3.12"), "python3"),
        (("python3.13", "python3.11"), "python3.13"),
        (("python3.11",), "python3.11"),
    ],
)
def test_make_takes_an_interpreter_that_runs(running, chosen, tmp_path):
    """Make passes by interpreters that are on the path and fail, as the shims of a version manager do."""
    for name in ("python3", "python3.13", "python3.12", "python3.11"):
        shim = tmp_path / name
        shim.write_text(f"#!/bin/sh\nexit {0 if name in running else 127}\n", encoding="utf-8")
        shim.chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    plan = subprocess.run(
        [shutil.which("make"), "-n", "-B", ".venv/.ready"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip

    assert f"\n{chosen} scripts/bootstrap.py .venv\n" in plan


def test_make_says_what_to_install(tmp_path):
    """Without any interpreter that serves, make ends with a sentence that names the remedy."""
    for name in ("python3", "python3.13", "python3.12", "python3.11"):
        shim = tmp_path / name
        shim.write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
        shim.chmod(0o755)
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text(encoding="utf-8"), encoding="utf-8")
    for name in ("pyproject.toml", "constraints.txt", "scripts/bootstrap.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    done = subprocess.run(
        [shutil.which("make"), "test"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode != 0
    assert "make PYTHON=/path/to/python" in done.stderr
    assert not (tmp_path / ".venv").exists()
