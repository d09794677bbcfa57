"""Layouts and numbers for the lossy tier: rows that may be quantised beside state that may not."""

import numpy as np

from kvledger.kinds import Form, Kind
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.copies.precisions import Precision
from support.world import group, layout

END = 512
PROMPT = list(range(600))


def config(precision=Precision.E4M3, **fields):
    """Return a configuration that quantises compressed rows on their way to disk."""
    precisions = {Kind.COMPRESSED_KV: precision} if precision else {}
    return CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, disk_precision=precisions, **fields)


def lossy_layout(*, rows=None, **fields):
    """Return a layout of padded bf16 rows and a window in fp8; `rows` are fields of the group of rows."""
    fields.setdefault("allow_approx", True)
    numbers = {"rows_per_page": 16, "row_bytes": 128, "page_bytes": 2112, "dtype": "bfloat16"} | (rows or {})
    window = {"rows_per_page": 64, "row_bytes": 32, "page_bytes": 2048, "window": 64, "dtype": "float8_e4m3fn"}
    return layout(
        group("C", Kind.COMPRESSED_KV, tokens_per_row=4, **numbers),
        group("S", Kind.SWA_WINDOW, Form.PAGED_WINDOW, **window),
        **fields,
    )


def floats(data, page_bytes=2112, values=1024):
    """Return the numbers of pages of bf16 as rows of 64, those that share a scale, and what stands behind them."""
    pages = np.frombuffer(data, dtype=np.uint16).reshape(-1, page_bytes // 2)
    wide = (pages.astype(np.uint32) << 16).view(np.float32)
    return wide[:, :values].reshape(-1, 64), pages[:, values:]


def within_bound(before, after, precision):
    """Tell whether every number is as near to what it was as `kvledger_kernels.quantise` promises."""
    part = 16 if precision is Precision.E4M3 else 127
    return bool((np.abs(before - after) <= np.abs(before).max(axis=1, keepdims=True) / part).all())
