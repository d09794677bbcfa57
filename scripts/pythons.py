"""Run the tests of core and storage, and the replay of one log, on every tested version of Python that is here.

`make test` runs on one interpreter; a log, though, may be replayed by another one than wrote it, and has to make the
same state there. So each version found gets a small environment of its own beside `.venv` (`.venv-3.12`, ...): what the
daemon needs and what its tests need, no torch, no engine. `make faults` finds these environments too.

Interpreters are looked for on the path and among those of pyenv. Standard library only.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
VERSIONS = ("3.11", "3.12", "3.13")
TOOLS = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout", "ruff")
TESTS = ("tests/unit/core", "tests/unit/log", "tests/unit/disk", "tests/unit/wire", "tests/property/test_core_runs.py")
REPLAY = "tests/fault/test_replay_everywhere.py"


def main() -> int:
    """Test every version; the last line tells by JSON what became of each. Returns 1 if any of them failed."""
    found = {version: tested(version) for version in VERSIONS}
    print(json.dumps(found), flush=True)
    return int("failed" in found.values())


def tested(version: str) -> str:
    """Set up the environment of one version if it is not there, run the tests in it, and say how that went."""
    interpreter = find(version)
    if interpreter is None:
        return f"skipped: no Python {version} that runs is on the path or among those of pyenv"
    print(f"Python {version}: {interpreter}", flush=True)
    python = ROOT / f".venv-{version}" / "bin" / "python"
    if not succeeds(python, "-c", "import kvledgerd, pytest, hypothesis, pytest_asyncio, pytest_timeout, ruff"):
        set_up(interpreter, python)
    command = [python, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *TESTS, REPLAY]
    return "failed" if subprocess.run(command, cwd=ROOT, check=False).returncode else "passed"


def find(version: str) -> str | None:
    """Return an interpreter of that version which runs; a version manager's shims may not."""
    places = [shutil.which(f"python{version}")]
    places += sorted(map(str, (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}")))
    return next((place for place in places if place and succeeds(place, "-c", "import venv, ensurepip")), None)


def set_up(interpreter: str, python: Path) -> None:
    """Make the environment anew; the user's own pip configuration stays in force."""
    subprocess.run([interpreter, "-m", "venv", "--clear", python.parent.parent], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", CONSTRAINTS]
    subprocess.run([*pip, "--editable", f"{ROOT}[daemon]", *TOOLS], check=True)


def succeeds(*command: str | Path) -> bool:
    """Tell whether a command exists and succeeds, in silence."""
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
