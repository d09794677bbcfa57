"""What importing the kernels costs and needs, each in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    """Return what a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_what_the_daemon_does_to_host_bytes_needs_no_torch():
    """Host bytes are fingerprinted, brought into another page format and quantised without loading torch."""
    code = """
import sys
import numpy as np
from kvledger.page_formats import PageFormat
from kvledger_kernels.dequantise import dequantise_reference
from kvledger_kernels.fingerprint import fingerprint
from kvledger_kernels.quantise import Code, quantise_reference
from kvledger_kernels.relayout import Conversion, relayout_reference
fingerprint(b"bytes")
one = PageFormat("one", "row", (1, 2), ((0,), (1,)), 2, 0, 6)
other = one._replace(sections=((0, 1),))
relayout_reference(Conversion(one, other, 1, 2), np.zeros(6, dtype=np.uint8), np.ones(6, dtype=np.uint8))
dequantise_reference(quantise_reference(np.zeros(64, dtype=np.uint16), Code.INT8), 64, Code.INT8)
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
