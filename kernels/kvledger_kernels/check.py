"""``python -m kvledger_kernels.check``: are the kernels right, and do they compile, on a machine without a GPU.

Equality is found by a child process under Triton's interpreter, since one process either interprets or compiles. The
last line is one JSON object, the form of ``make kernels``: {"kernels": {name: {"bytes", "equal", "compiled",
"registers", "spills"}}}, registers and spills being the highest of all variants and targets. Ends with 1 if a kernel
differs from its reference, does not compile, spills, or lacks a 128-bit access that it is meant to have.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import msgspec

from kvledger_kernels.compiling import ARCHITECTURES, Variant, compile_variant
from kvledger_kernels.equality import Outcome
from kvledger_kernels.runtime import triton
from kvledger_kernels.variants import variants

__all__ = ["Report", "main"]


class Report(msgspec.Struct):
    """One kernel's line in the JSON object.

    Attributes:
        bytes: Bytes that were compared with the reference.
        equal: Whether all of them were the same.
        compiled: Targets for which every variant compiled as meant.
        registers: Most registers of a thread.
        spills: Most spilling instructions of a binary.
    """

    bytes: int
    equal: bool
    compiled: list[str]
    registers: int = 0
    spills: int = 0

    @property
    def good(self) -> bool:
        """Whether there is nothing to mend."""
        return self.equal and not self.spills and len(self.compiled) == len(ARCHITECTURES)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _compare_interpreted() -> dict[str, Report]:
    child = subprocess.run(
        [sys.executable, "-m", "kvledger_kernels.equality"],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    outcomes = msgspec.json.decode(child.stdout, type=dict[str, Outcome])
    targets = [f"sm_{architecture}" for architecture in ARCHITECTURES]
    return {name: Report(outcome.bytes, outcome.equal, list(targets)) for name, outcome in outcomes.items()}


def _compile(variant: Variant, architecture: int, report: Report) -> None:
    target = f"sm_{architecture}"
    try:
        binary = compile_variant(variant, architecture)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises is the result
        _say(f"  {target} {variant}: does not compile: {error}")
        report.compiled = [name for name in report.compiled if name != target]
        return
    report.registers = max(report.registers, binary.registers)
    report.spills = max(report.spills, binary.spills)
    missing = sorted(variant.wide - binary.wide)
    if missing:
        report.compiled = [name for name in report.compiled if name != target]
    wide = f"no 128-bit {' and '.join(missing)}" if missing else f"128-bit: {', '.join(sorted(binary.wide)) or 'none'}"
    _say(f"  {target} {variant}: {binary.registers} registers, {binary.spills} spills, {wide}")


def main() -> int:
    """Check all kernels; return the exit code."""
    if triton is None:
        sys.stderr.write("kernels can not be checked without Triton: install kvledger[gpu]\n")
        return 1
    _say("comparing kernels with their references under the interpreter")
    reports = _compare_interpreted()
    for name, report in reports.items():
        _say(f"  {name}: {report.bytes:,} bytes {'equal' if report.equal else 'DIFFER'}")
    _say("compiling")
    for variant in variants():
        for architecture in ARCHITECTURES:
            _compile(variant, architecture, reports[variant.name])
    result: dict[str, Any] = {"kernels": reports}
    _say(msgspec.json.encode(result).decode())
    return 0 if all(report.good for report in reports.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
