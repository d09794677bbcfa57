"""The container file, as far as it can be tried without a container engine: what it copies, builds and runs."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def steps() -> list[tuple[str, str]]:
    """Return the steps of the container file: instruction and the rest of its line, continued lines joined."""
    text = (ROOT / "ops/Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1].strip()) for line in lines]


def step(name: str) -> str:
    """Return the one step of a name."""
    (found,) = (rest for instruction, rest in steps() if instruction == name)
    return found


def copied(target: Path) -> Path:
    """Copy what the container file copies, to the same places below a folder; return where the sources are then."""
    for instruction, rest in steps():
        if instruction == "COPY":
            *sources, place = rest.split()
            folder = target / place.lstrip("/")
            for source in sources:
                path = ROOT / source
                if path.is_dir():
                    shutil.copytree(path, folder, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    folder.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, folder)
    return target / "src"


def test_what_it_copies_is_there_and_is_all_that_a_build_needs(tmp_path):
    """Each source exists, and pyproject.toml names no file or folder that was not copied."""
    source = copied(tmp_path)
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"], project["project"]["readme"]]
    assert [name for name in (*wanted, *project["project"]["license-files"]) if not (source / name).exists()] == []
    installs = next(rest for instruction, rest in steps() if instruction == "RUN" and rest.startswith("pip install"))
    extras = re.search(r"--constraint /src/constraints.txt '/src\[([\w,]+)\]'", installs)[1].split(",")
    assert "daemon" in extras
    assert set(extras) <= set(project["project"]["optional-dependencies"])


def test_places_users_and_probe_are_those_of_the_daemon():
    """Volumes are the default places of data and socket, the probe is the drill, and nobody is root."""
    from kvledgerd.settings.table import Config

    volumes = json.loads(step("VOLUME"))
    assert volumes == [str(Config().data_dir), str(Config().socket.parent)]
    made = next(rest for instruction, rest in steps() if instruction == "RUN" and "useradd" in rest)
    assert all(volume in made for volume in volumes)
    assert step("USER") == "kvledger"
    assert step("STOPSIGNAL") == "SIGTERM"
    assert json.loads(step("HEALTHCHECK").partition("CMD ")[2]) == ["kvledger", "health"]


@pytest.mark.slow
def test_what_it_installs_serves_and_passes_its_probe(tmp_path, tmp_socket_dir):
    """In a fresh environment, from the copied files alone, entry point and probe do what the image would do."""
    pytest.importorskip("pip")
    source, place = copied(tmp_path / "image"), tmp_path / "venv"
    venv.create(place, with_pip=False)
    # Its dependencies come from here: an index may be out of reach
    wheel = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*wheel, "--wheel-dir", str(tmp_path), str(source)], check=True, timeout=120)
    (built,) = tmp_path.glob("kvledger-*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python")]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--quiet", str(built)], check=True, timeout=120)
    site = next((place / "lib").glob("python*/site-packages"))
    folders = {sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))}
    (site / "dependencies.pth").write_text("\n".join(sorted(folders)) + "\n")
    where = subprocess.run(
        [place / "bin/python", "-c", "import kvledgerd; print(kvledgerd.__file__)"], capture_output=True, check=True
    )
    assert str(site) in where.stdout.decode(), "the environment has another kvledger"

    environment = {
        "PATH": f"{place / 'bin'}:/usr/bin:/bin",
        "KVLEDGER_DATA_DIR": str(tmp_path / "data"),
        "KVLEDGER_SOCKET": str(tmp_socket_dir / "s"),
        "KVLEDGER_MEMORY_BYTES": "64MiB",
    }
    probe = [*json.loads(step("HEALTHCHECK").partition("CMD ")[2]), "--socket", str(tmp_socket_dir / "s")]
    entry = json.loads(step("ENTRYPOINT"))
    with subprocess.Popen(entry, env=environment, stderr=subprocess.DEVNULL) as served:
        try:
            end = time.monotonic() + 60
            while subprocess.run(probe, env=environment, capture_output=True, check=False).returncode:
                assert time.monotonic() < end, "the probe never passes"
                time.sleep(0.2)
        finally:
            served.send_signal(getattr(signal, step("STOPSIGNAL")))
            assert served.wait(60) == 0
    assert subprocess.run(probe, env=environment, capture_output=True, check=False).returncode == 1
    assert not (tmp_socket_dir / "s").exists()
