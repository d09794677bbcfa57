"""Every specialisation that the launch functions ask for, so that each is compiled where there is no GPU.

A kernel's constants decide which code it becomes; what is listed here are the combinations that occur, of those with a
free size the one of DeepSeek-V4. Which accesses are meant to be 128 bits wide stands beside each, so that a change that
makes one narrow is found by `kvledger_kernels.check`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from kvledger_kernels.compact import UNITS as MOVE_UNITS
from kvledger_kernels.compact import compact_kernel
from kvledger_kernels.compiling import Variant
from kvledger_kernels.dequantise import dequantise_kernel
from kvledger_kernels.fingerprint import UNITS as SUM_UNITS
from kvledger_kernels.fingerprint import fingerprint_kernel
from kvledger_kernels.indexer_check import ROWS, index_scores_kernel
from kvledger_kernels.pack import pack_kernel
from kvledger_kernels.paged_copy import UNITS
from kvledger_kernels.pool import pool_kernel
from kvledger_kernels.quantise import GROUPS, quantise_kernel
from kvledger_kernels.relayout import UNITS as RELAYOUT_UNITS
from kvledger_kernels.relayout import relayout_kernel
from kvledger_kernels.unpack import unpack_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["variants"]

_BOTH = frozenset({"load", "store"})
_NARROW = frozenset[str]()


def variants() -> Iterator[Variant]:
    """Give every variant that the launch functions use, and of each kernel the one whose numbers are all 1."""
    yield from _fingerprint()
    yield from _paged("pack", pack_kernel)
    yield from _paged("unpack", unpack_kernel)
    yield from _relayout()
    yield from _compact()
    yield from _quantise()
    yield from _pool()
    yield from _index_scores()


def _with_ones(variant: Variant) -> Variant:
    """Return the variant for numbers that are 1: Triton makes constants of them, which lack methods of a tensor."""
    kept = {name: kind for name, kind in variant.types.items() if kind.startswith("*") or kind == "fp32"}
    ones = dict.fromkeys(variant.types.keys() - kept.keys(), 1)
    return replace(variant, types=kept, constants={**variant.constants, **ones})


def _fingerprint() -> Iterator[Variant]:
    types = {"p_data": "*u8", "p_sums": "*i64", "units": "i32", "tail": "i32", "first_word": "i64", "loops": "i32"}
    for alignment, wide in ((16, frozenset({"load"})), (8, _NARROW)):
        constants: dict[str, int | bool] = {"alignment": alignment, "unit_block": SUM_UNITS}
        yield (variant := Variant("fingerprint", fingerprint_kernel, types, constants, wide))
    yield _with_ones(variant)


def _paged(name: str, kernel: Any) -> Iterator[Variant]:
    numbers = "layers slots chunks loops page_bytes page_steps held_steps row_steps row_stride_steps"
    types = {"p_table": "*i64", "p_object": "*u8", "p_sums": "*i64", "page_stride": "i64"}
    types |= dict.fromkeys(numbers.split(), "i32")
    for step, dense, fold in product((16, 8, 1), (True, False), (True, False)):
        constants = {"step": step, "dense": dense, "fold": fold, "unit_block": UNITS}
        variant = Variant(name, kernel, types, constants, _BOTH if step == 16 else _NARROW)
        yield variant
        if (step, dense, fold) == (1, False, True):
            yield _with_ones(variant)


def _relayout() -> Iterator[Variant]:
    types = {"p_runs": "*i64", "p_source": "*u8", "p_target": "*u8"}
    numbers = "runs chunks loops source_pages target_pages source_rows target_rows source_steps target_steps"
    types |= dict.fromkeys([*numbers.split(), "rows", "run_rows", "run_steps"], "i32")
    for step in (16, 8, 4, 1):
        constants: dict[str, int | bool] = {"step": step, "unit_block": RELAYOUT_UNITS}
        variant = Variant("relayout", relayout_kernel, types, constants, _BOTH if step == 16 else _NARROW)
        yield variant
    yield _with_ones(variant)


def _compact() -> Iterator[Variant]:
    types = {"p_moves": "*i64", "p_memory": "*u8", "chunks": "i32", "loops": "i32"}
    for step in (16, 8, 4, 1):
        constants: dict[str, int | bool] = {"step": step, "unit_block": MOVE_UNITS}
        variant = Variant("compact", compact_kernel, types, constants, _BOTH if step == 16 else _NARROW)
        yield variant
    yield _with_ones(variant)


def _quantise() -> Iterator[Variant]:
    types = {"p_values": "*u16", "p_codes": "*u8", "p_scales": "*u8", "values": "i32", "groups": "i32"}
    for name, kernel in (("quantise", quantise_kernel), ("dequantise", dequantise_kernel)):
        for int8, short in product((False, True), (False, True)):
            constants: dict[str, int | bool] = {"int8": int8, "short": short, "group_block": GROUPS}
            variant = Variant(name, kernel, types, constants, _NARROW if short else _BOTH)
            yield variant
        yield _with_ones(variant)


def _pool() -> Iterator[Variant]:
    pointers = "p_kv p_gate p_halo_kv p_halo_gate p_weight p_cos p_sin"
    types = {**dict.fromkeys(pointers.split(), "*fp32"), "pairs": "i32", "eps": "fp32"}
    for (ratio, dim, overlap, halo), bf16 in product(
        ((4, 512, True, True), (4, 512, True, False), (4, 128, True, True), (128, 512, False, False)), (False, True)
    ):
        constants = {"ratio": ratio, "dim": dim, "overlap": overlap, "halo": halo, "bf16": bf16, "channel_block": dim}
        out = {"p_out": "*u16" if bf16 else "*fp32"}
        wide = _NARROW if dim < 512 else frozenset({"load"}) if bf16 else _BOTH
        variant = Variant("pool", pool_kernel, types | out, constants, wide)
        yield variant
    yield _with_ones(variant)


def _index_scores() -> Iterator[Variant]:
    types = {"p_data": "*u8", "p_pages": "*i64", "p_limits": "*i32"}
    types |= dict.fromkeys(("p_queries", "p_weights", "p_scores"), "*fp32")
    numbers = "rows queries heads page_rows page_bytes key_base key_stride scale_base scale_stride"
    types |= dict.fromkeys(numbers.split(), "i32")
    for alignment, wide in ((16, frozenset({"load"})), (4, _NARROW)):
        constants: dict[str, int | bool] = {"alignment": alignment, "row_block": ROWS}
        variant = Variant("indexer_check", index_scores_kernel, types, constants, wide)
        yield variant
    yield _with_ones(variant)
