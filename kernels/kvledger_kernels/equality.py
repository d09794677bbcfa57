"""Run every kernel against its reference and count the bytes that were compared.

As a program (``python -m kvledger_kernels.equality [DEVICE]``) it prints one JSON object, kernel to {"bytes",
"equal"}. On a CPU it needs TRITON_INTERPRET=1, as otherwise the reference would be compared with itself. The memory
is random with poison around it: bits that are no numbers in any dtype, and sizes that fill neither words nor units.
"""

from __future__ import annotations

import sys

import msgspec
import torch

from kvledger_kernels.byte_comparisons import BYTE_COMPARISONS
from kvledger_kernels.errors import refuse
from kvledger_kernels.runtime import kernel_serves
from kvledger_kernels.value_comparisons import VALUE_COMPARISONS

__all__ = ["Outcome", "compare"]


class Outcome(msgspec.Struct):
    """What came of comparing one kernel with its reference.

    Attributes:
        bytes: Bytes that were compared.
        equal: Whether every one, and every fingerprint, was the same.
    """

    bytes: int = 0
    equal: bool = True

    def add(self, length: int, *, equal: bool) -> None:
        """Count one comparison."""
        self.bytes += length
        self.equal = self.equal and equal


def compare(device: str) -> dict[str, Outcome]:
    """Compare all kernels with their references on a device.

    Raises:
        KernelArgumentError: On this device the references serve, so there is nothing to compare.
    """
    if not kernel_serves(torch.empty(0, device=device)):
        refuse("device", f"no kernel serves {device}", "set TRITON_INTERPRET=1, or name a GPU")
    checks = {**BYTE_COMPARISONS, **VALUE_COMPARISONS}
    outcomes = {name: Outcome() for name in checks}
    torch.manual_seed(1)
    for name, check in checks.items():
        for length, equal in check(device):
            outcomes[name].add(length, equal=equal)
    return outcomes


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(compare(*sys.argv[1:] or ["cpu"])).decode() + "\n")
