"""Proof without a GPU that every kernel becomes a binary: compiled for each architecture, disassembled and looked at.

A kernel under the interpreter can be right and still not compile, spill registers or move single bytes. Triton's own
compiler and the tools in its wheel say so on any machine. A variant is one specialisation that the launch functions
ask for (`kvledger_kernels.variants`); numbers carry no hint of divisibility here, only addresses do, which is the least
that a launch promises.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvledger_kernels.errors import refuse
from kvledger_kernels.runtime import triton

__all__ = ["ARCHITECTURES", "Binary", "Variant", "compile_variant"]

ARCHITECTURES = (80, 90, 100)

_WIDE_LOAD = re.compile(r"\bLDG\.E\S*\.128\b")
_WIDE_STORE = re.compile(r"\bSTG\.E\S*\.128\b")
_LOCAL = re.compile(r"\b(?:LDL|STL)\b")


@dataclass(frozen=True)
class Variant:
    """One specialisation of a kernel.

    Attributes:
        name: The kernel's name in reports.
        kernel: The function under `jit`.
        types: Type of each argument that is not a constant.
        constants: Value of each constant.
        wide: Which 128-bit accesses the variant is meant to have, among "load" and "store".
    """

    name: str
    kernel: Any
    types: dict[str, str]
    constants: dict[str, int | bool]
    wide: frozenset[str]

    def __str__(self) -> str:
        chosen = {key: value for key, value in self.constants.items() if key != "unit_block"}
        return " ".join([self.name, *(f"{key}={value}" for key, value in chosen.items())])


@dataclass(frozen=True)
class Binary:
    """What the compiler made of a variant.

    Attributes:
        registers: Registers of a thread.
        spills: Instructions that move registers to or from local memory.
        wide: Which 128-bit accesses to global memory it has, among "load" and "store".
    """

    registers: int
    spills: int
    wide: frozenset[str]


def compile_variant(variant: Variant, architecture: int) -> Binary:
    """Compile a variant for an NVIDIA architecture (90 is sm_90) and read its machine code.

    Raises:
        KernelArgumentError: Triton is not installed, or was imported under TRITON_INTERPRET.
        Exception: Whatever Triton raises if the kernel does not compile.
    """
    if not hasattr(variant.kernel, "cache_key"):
        refuse("TRITON_INTERPRET", "no compiler here", "install kvledger[gpu] and leave the variable unset")
    source = triton.compiler.ASTSource(variant.kernel, *_source_arguments(variant))
    with tempfile.TemporaryDirectory() as folder, triton.knobs.cache.scope():
        triton.knobs.cache.dir = folder
        target = triton.backends.compiler.GPUTarget("cuda", architecture, 32)
        return _read(triton.compile(source, target=target).asm["cubin"], Path(folder))


def _source_arguments(variant: Variant) -> tuple[dict[str, str], dict[str, int | bool], dict[tuple[int], list[Any]]]:
    signature = {name: variant.types.get(name, "constexpr") for name in variant.kernel.arg_names}
    aligned = [number for number, kind in enumerate(signature.values()) if kind.startswith("*")]
    return signature, variant.constants, {(number,): [["tt.divisibility", 16]] for number in aligned}


def _read(cubin: bytes, folder: Path) -> Binary:
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    usage, code = _disassemble("-res-usage", file), _disassemble("-sass", file)
    found = re.search(r"\bREG:(\d+)", usage)
    if found is None:
        refuse("cuobjdump", "did not tell the registers", "use the version of Triton named in constraints")
    wide = {"load": _WIDE_LOAD, "store": _WIDE_STORE}
    return Binary(
        registers=int(found[1]),
        spills=len(_LOCAL.findall(code)),
        wide=frozenset(name for name, pattern in wide.items() if pattern.search(code)),
    )


def _disassemble(option: str, file: Path) -> str:
    command = [triton.knobs.nvidia.cuobjdump.path, option, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - a tool of the wheel
