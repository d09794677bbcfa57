"""Every kernel file is read in the same order: what it computes, reference, kernel, launch."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import kvledger_kernels

FILES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted(Path(kvledger_kernels.__file__).parent.glob("*.py"))
    if "\n# --- launch" in path.read_text(encoding="utf-8")
}
SAID = ("Formula", "Source", "Shapes and dtypes", "Byte floor", "Tolerance", "Traps")


def test_every_kernel_of_the_design_has_a_file():
    """Pack, unpack, fingerprint, quantise, dequantise, relayout, pool, indexer check and compact: one file each."""
    names = "compact dequantise fingerprint indexer_check pack pool quantise relayout unpack"
    assert list(FILES) == names.split()


@pytest.mark.parametrize("name", FILES)
def test_a_kernel_file_says_what_has_to_be_known(name):
    """Formula with its source, shapes, byte floor, tolerance and traps stand on top, then what is checked, in order."""
    said = ast.get_docstring(ast.parse(FILES[name]))
    assert [word for word in SAID if word not in said] == []
    assert re.findall(r"^# --- (\w+) -", FILES[name], re.MULTILINE) == ["reference", "kernel", "launch"]
