"""What importing the kernels costs and needs, each in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    """Return what a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_fingerprints_of_buffers_need_no_torch():
    """The daemon fingerprints host bytes without loading torch."""
    code = """
import sys
from kvledger_kernels.fingerprint import fingerprint
fingerprint(b"bytes")
print("torch" in sys.modules)
"""
    assert run(code) == "False"


def test_everything_serves_without_triton():
    """Where Triton is not installed the references do all work on a CPU."""
    code = """
import sys
sys.modules["triton"] = None
import torch
from kvledger_kernels.objects import TensorSpec, pack_tensors, unpack_tensors
out = bytearray(24)
value = pack_tensors([torch.arange(3)], out)
tensors, seen = unpack_tensors(out, [TensorSpec((3,), torch.int64)])
print(tensors[0].tolist(), seen == value)
"""
    assert run(code) == "[0, 1, 2] True"
