"""Kernels become binaries for GPUs that are not there; the telling variants here, all of them in ``make kernels``."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="there is nothing to compile without Triton")

from dataclasses import replace

from kvledger_kernels import check
from kvledger_kernels.compiling import ARCHITECTURES, compile_variant
from kvledger_kernels.equality import compare
from kvledger_kernels.errors import KernelArgumentError
from kvledger_kernels.variants import variants

ALL = list(variants())
COPYING = ("fingerprint", "pack", "unpack")
WIDE = [variant for variant in ALL if variant.wide and variant.constants.get("fold", True)]
FURTHER = {variant.name: variant for variant in WIDE if variant.name not in COPYING}
TELLING = [*(variant for variant in WIDE if variant.name in COPYING), *FURTHER.values()]
REST = [variant for variant in WIDE if variant not in TELLING]
ONES = [variant for variant in ALL if variant.constants.get("row_steps", variant.constants.get("units")) == 1]
BYTES = [variant for variant in ALL if variant.constants.get("step") == 1 and variant.constants.get("fold")]


@pytest.mark.parametrize("variant", [*TELLING, *(pytest.param(one, marks=pytest.mark.slow) for one in REST)], ids=str)
def test_aligned_variants_move_128_bits_without_spills(variant):
    """Where everything is divisible by 16, loads and stores are 128 bits wide and no register is spilled."""
    binary = compile_variant(variant, 90)

    assert variant.wide <= binary.wide
    assert binary.spills == 0
    assert 0 < binary.registers <= (64 if variant.name in COPYING else 80)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("variant", BYTES[:1], ids=str)
def test_the_heaviest_variant_fits_every_architecture(variant, architecture):
    """Moving single bytes takes the most registers, and still spills none."""
    assert compile_variant(variant, architecture).spills == 0


@pytest.mark.parametrize("variant", ONES, ids=lambda variant: variant.name)
def test_numbers_that_are_one_compile(variant):
    """A launch whose numbers are all 1, which the compiler takes as constants, compiles as well."""
    assert compile_variant(variant, 90).registers > 0


def test_missing_wide_access_is_reported(capsys):
    """A variant that lacks a 128-bit access it is meant to have takes its target off the list, and says which."""
    narrow = next(variant for variant in ALL if variant.constants.get("step") == 8)
    report = check.Report(bytes=1, equal=True, compiled=["sm_80", "sm_90", "sm_100"])
    check._compile(replace(narrow, wide=frozenset({"load"})), 90, report)

    assert report.compiled == ["sm_80", "sm_100"]
    assert not report.good
    assert "no 128-bit load" in capsys.readouterr().out


def test_kernel_that_does_not_compile_is_reported(capsys):
    """A compiler error is a result with its target and reason, not the end of the check."""
    broken = replace(ALL[0], types={**ALL[0].types, "p_data": "i32"})
    report = check.Report(bytes=1, equal=True, compiled=["sm_90"])
    check._compile(broken, 90, report)

    assert report.compiled == []
    assert "sm_90 fingerprint alignment=16: does not compile" in capsys.readouterr().out


def test_comparison_without_kernels_is_refused():
    """On a CPU without the interpreter the reference would be compared with itself, so nothing is claimed."""
    with pytest.raises(KernelArgumentError, match="no kernel serves cpu"):
        compare("cpu")


@pytest.mark.slow
@pytest.mark.timeout(600)  # a minute and a half of one processor, which others may share
def test_whole_check_ends_with_its_report():
    """``python -m kvledger_kernels.check`` says for each kernel: bytes, equal, targets, registers, spills."""
    command = [sys.executable, "-m", "kvledger_kernels.check"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kernels = json.loads(done.stdout.splitlines()[-1])["kernels"]

    assert set(kernels) == {variant.name for variant in ALL}
    for name, report in kernels.items():
        assert report["bytes"] > (100_000 if name in COPYING else 2_000)
        assert report["equal"] is True
        assert report["compiled"] == ["sm_80", "sm_90", "sm_100"]
        assert report["registers"] > 0
        assert report["spills"] == 0
