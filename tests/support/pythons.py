"""The other interpreters of this machine that could run kvledger, and why the rest of them can not.

An interpreter serves if it runs and has what the daemon imports; kvledger itself is taken from this checkout. Those
that `make pythons` set up come first, then what the path offers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13")
_ROOT = Path(__file__).parents[2]
_SOURCES = os.pathsep.join(str(_ROOT / name) for name in ("client", "kernels", "storage", "daemon"))


def environment(**more):
    """Return the environment in which an interpreter finds this checkout."""
    return os.environ | {"PYTHONPATH": _SOURCES} | more


def other_versions():
    """Return the tested versions that this interpreter is not."""
    return [version for version in VERSIONS if version != f"{sys.version_info[0]}.{sys.version_info[1]}"]


def serving(version, module):
    """Return an interpreter of this version that can import a module of kvledger, and why not if there is none."""
    places = [_ROOT / f".venv-{version}/bin/python", _ROOT / ".venv/bin/python", shutil.which(f"python{version}")]
    why = f"Python {version} is not installed"
    for place in filter(None, places):
        if not _is(place, version):
            continue
        tried = subprocess.run(
            [place, "-c", f"import {module}"], env=environment(), capture_output=True, text=True, check=False
        )
        if tried.returncode == 0:
            return place, ""
        why = f"Python {version} lacks packages, `make pythons` installs them: {tried.stderr.strip().splitlines()[-1]}"
    return None, why


def _is(place, version):
    code = f"import sys; sys.exit(sys.version_info[:2] != ({version.replace('.', ', ')}))"
    try:
        return subprocess.run([place, "-c", code], capture_output=True, check=False).returncode == 0
    except OSError:
        return False
