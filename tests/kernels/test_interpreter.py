"""The kernels themselves, without a GPU: the tests beside this one again, under Triton's interpreter.

TRITON_INTERPRET has to be set before Triton is imported, so they run in a process of their own. There every launch
function takes the kernel where it would take the reference, and the same text of the tests holds the kernel to the
same bytes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = (
    "test_fingerprint.py",
    "test_pack_unpack.py",
    "test_objects.py",
    "test_relayout.py",
    "test_compact.py",
    "test_quantise.py",
    "test_pool.py",
    "test_indexer_check.py",
)


@pytest.mark.timeout(400)  # half a minute of one processor, which others may share
@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="this is the process that it would start")
def test_kernels_pass_the_tests_of_their_references():
    """Under the interpreter every test of a kernel's reference passes with the Triton kernel in its place."""
    pytest.importorskip("triton", reason="kernels can not be interpreted without Triton")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(str(HERE / name) for name in FILES)]
    child = subprocess.run(
        command,
        cwd=HERE.parents[1],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    passed = re.search(r"(\d+) passed", child.stdout)

    assert child.returncode == 0, child.stdout[-6000:] + child.stderr[-2000:]
    assert passed
    assert int(passed[1]) >= 240
    assert "skipped" not in child.stdout
