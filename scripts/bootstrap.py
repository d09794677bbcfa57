"""Make the virtual environment that every Make target runs in, from nothing but a Python interpreter.

Why a script of its own: PyPI's torch for Linux brings CUDA, several GB of it, which a machine without an NVIDIA GPU can
not use. Which build is wanted, and where it can be had, depends on the machine, and pip has no way to ask. So torch is
installed first and by itself; everything else then finds it present. The user's own pip configuration (mirrors,
find-links, constraints, proxies) stays in force at every step, nothing here replaces it.

Standard library only, since nothing else is there yet.
"""

from __future__ import annotations

import http.client
import platform
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
EXTRAS = "daemon,audit,page,transformers,gpu,dev"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PROBE_TIMEOUT_S = 5.0
STEPS = 4


def main(arguments: list[str]) -> int:
    """Set up the environment in the folder named by the first argument, step by step.

    Returns:
        The exit status: 0, or that of the step which failed, whose command is printed.
    """
    venv = ROOT / (arguments[0] if arguments else ".venv")
    started = time.monotonic()
    try:
        python = make_environment(venv)
        install_torch(python)
        install_rest(python)
        check(python)
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd))
        sys.stderr.write(f"\nset-up failed with status {error.returncode} in: {command}\nRun make again to go on.\n")
        return error.returncode or 1
    say(f"ready after {time.monotonic() - started:.0f} s")
    return 0


def make_environment(venv: Path) -> Path:
    """Create the virtual environment, or keep the one that is there if its interpreter still runs."""
    python = venv / "bin" / "python"
    if runs([python, "-m", "pip", "--version"]):
        step(1, f"virtual environment {venv.name} is there")
        return python
    step(1, f"virtual environment {venv.name} with Python {platform.python_version()}")
    subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
    return python


def install_torch(python: Path) -> None:
    """Install the pinned torch: with CUDA where a GPU answers, else the CPU build from where it can be had."""
    version = pinned("torch")
    requirement = f"torch=={version}"
    if runs([python, "-c", f"import torch, sys; sys.exit(torch.__version__.partition('+')[0] != '{version}')"]):
        step(2, f"torch {version} is there")
    elif has_gpu():
        step(2, f"torch {version} with CUDA, since nvidia-smi finds a GPU: several GB, this takes minutes")
        pip(python, requirement)
    elif answers(f"{CPU_INDEX}/torch/"):
        step(2, f"torch {version}, CPU build: some 190 MB to fetch, 750 MB on disk")
        pip(python, requirement, "--extra-index-url", CPU_INDEX)
    else:
        step(2, f"torch {version} from pip's own sources, since {CPU_INDEX} does not answer")
        say("some 190 MB if they offer a CPU build, several GB if they only have the one with CUDA")
        pip(python, requirement)


def install_rest(python: Path) -> None:
    """Install kvledger itself, editable, with every extra that the demo and the tests use."""
    step(3, f"kvledger[{EXTRAS}], the largest being triton: some 250 MB to fetch, 900 MB on disk")
    pip(python, "--editable", f"{ROOT}[{EXTRAS}]")


def check(python: Path) -> None:
    """Import what is slowest to find out about later, and say on what device torch will compute."""
    step(4, "checking what was installed")
    code = """
import torch, triton, transformers, kvledger, kvledger_kernels, kvledger_storage, kvledgerd
device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"  torch {torch.__version__} on {device}, triton {triton.__version__}, transformers {transformers.__version__}")
"""
    subprocess.run([python, "-c", code], check=True)


def pip(python: Path, *arguments: str) -> None:
    """Run `pip install` under the constraints, with its own progress shown."""
    head: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--constraint",
        CONSTRAINTS,
    ]
    subprocess.run([*head, *arguments], check=True)


def pinned(name: str) -> str:
    """Return the version that constraints.txt pins a package to.

    Raises:
        SystemExit: The package has no pin there.
    """
    for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines():
        package, _, version = line.partition("==")
        if package == name:
            return version
    sys.exit(f"constraints.txt pins no {name}: add a line {name}==VERSION")


def has_gpu() -> bool:
    """Tell whether the NVIDIA driver answers; a machine may have the tool without a device."""
    return shutil.which("nvidia-smi") is not None and runs(["nvidia-smi", "-L"])


def answers(url: str) -> bool:
    """Tell whether a URL can be read within a few seconds.

    A thread, because the timeout of a request does not cover name look-up, which can hang for minutes.
    """
    found: list[bool] = []

    def probe() -> None:
        try:
            with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_S) as reply:  # noqa: S310 - a constant https URL
                found.append(reply.status == 200)
        except (OSError, http.client.HTTPException):
            found.append(False)

    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(PROBE_TIMEOUT_S)
    return found == [True]


def runs(command: list[str | Path]) -> bool:
    """Tell whether a command exists and succeeds, in silence."""
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def step(number: int, what: str) -> None:
    """Print the head line of a step."""
    say(f"[{number}/{STEPS}] {what}")


def say(line: str) -> None:
    """Print one line at once, also when the output is a pipe."""
    print(line if line.startswith("[") else f"  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
