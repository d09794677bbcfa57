"""The public names of the client, and what importing them costs."""

import subprocess
import sys
from pathlib import Path

import pytest

import kvledger

NAMES = """AsyncCache AsyncDevicePool AsyncDeviceUnit AsyncHit AsyncTopology AsyncUnit AsyncUnitShard AttachedHit Cache
Code Cut DevicePool DeviceUnit EpochState Exactness Form GroupSpec Handle Hit KVLedgerError KernelABI Kind Layer Layout
LeaseLost RegisteredLayout Topology TopologyLostError Unit UnitShard UnitSlot""".split()  # noqa: SIM905 - one text is easier to compare


def test_public_names():
    """These names are public, no more and no less, and each can be had."""
    assert kvledger.__all__ == NAMES
    for name in NAMES:
        assert getattr(kvledger, name).__name__ == name


def test_unknown_name():
    """A name that does not exist is an AttributeError as of any module."""
    with pytest.raises(AttributeError, match="no attribute 'Cash'"):
        kvledger.Cash  # noqa: B018 - looking is what fails


def test_same_methods_in_both_clients():
    """Both clients have the same methods."""
    for name in ("Cache", "DevicePool", "DeviceUnit", "Hit", "Topology", "Unit", "UnitShard"):
        one, other = getattr(kvledger, name), getattr(kvledger, f"Async{name}")
        assert {m for m in dir(one) if m[0] != "_"} == {m for m in dir(other) if m[0] != "_"}


def loaded(statement):
    """Return the modules that a fresh interpreter has loaded after a statement."""
    program = f"{statement}; import sys; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )


def test_import_is_light():
    """Importing the package loads nothing but itself, and the client loads nothing of an engine or the daemon."""
    assert not loaded("import kvledger") & {"msgspec", "anyio", "blake3", "kvledger._sync.cache"}
    assert not loaded("from kvledger import Cache") & {
        "torch",
        "numpy",
        "kvledger_kernels",
        "kvledger_storage",
        "kvledgerd",
        "ctypes",
    }


def test_import_opens_nothing():
    """Importing the client opens no descriptor and starts no thread."""
    program = (
        "import os, threading; from kvledger import Cache, AsyncCache; "
        "print(len(os.listdir('/proc/self/fd')), threading.active_count())"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert found == ["4", "1"]  # standard input, output, error, and the listing itself


@pytest.mark.slow
def test_user_code_type_checks():
    """User code that follows the documentation passes mypy in strict mode."""
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-m", "mypy", "tests/typing/api.py"]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
