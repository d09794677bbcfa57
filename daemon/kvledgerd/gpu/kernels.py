"""Kernels on a device: each compared with its reference, and timed only where not a bit differed in the same run."""

from collections.abc import Iterator
from typing import NamedTuple

from kvledger_kernels.equality import Outcome, compare
from kvledger_kernels.rates import measure

__all__ = ["KernelLine", "check_kernels", "lines"]

BYTES = 256 << 20
"""Bytes of the objects that are timed: far more than the caches of any GPU hold."""


class KernelLine(NamedTuple):
    """One line of the table.

    Attributes:
        name: The kernel, and of those with several usual shapes which one.
        equal: Whether it was equal to its reference in this run.
        floor: Bytes that it has to move, 0 if it was not timed.
        milliseconds: What that took, 0 if it was not timed.
    """

    name: str
    equal: bool
    floor: int = 0
    milliseconds: float = 0.0

    def __str__(self) -> str:
        if not self.equal:
            return f"{self.name:24} DIFFERS from its reference: not timed"
        rate = self.floor / self.milliseconds / 1e6
        return f"{self.name:24} equal  {self.floor / 1e6:9.1f} MB {self.milliseconds:9.3f} ms {rate:9.1f} GB/s"


def check_kernels(device: str, size: int = BYTES) -> Iterator[KernelLine]:
    """Compare all kernels on a device, then time those that are right.

    Raises:
        KernelArgumentError: No kernel serves the device.
    """
    yield from lines(compare(device), device, size)


def lines(outcomes: dict[str, Outcome], device: str, size: int) -> Iterator[KernelLine]:
    """Yield a line for each call, and one for each kernel that differs; of those no time is taken."""
    wrong = [name for name, outcome in outcomes.items() if not outcome.equal]
    yield from (KernelLine(name, equal=False) for name in wrong)
    for rate in measure(device, size, leave_out=wrong):
        yield KernelLine(rate.name, equal=True, floor=rate.floor, milliseconds=rate.seconds * 1e3)
