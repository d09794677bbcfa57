"""Write what the program says into docs/verdict.md: an example line for each code, and three look-ups explained.

Usage: PYTHONPATH=tests python -m support.verdict_page
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
from pathlib import Path

from kvledger.verdict import Code
from kvledgerd.cli import main as kvledger
from support.refused import EXPLAINED, REFUSED, cut_of, write_log

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).resolve().parents[2] / "docs/verdict.md"


def page(old: str) -> str:
    """Return the page with fresh examples between its marks."""
    fresh = {f"code {code.value}": str(cut_of(make(), code)) for code, make in REFUSED.items()}
    fresh |= {f"explain {name}": explained(code) for name, code in EXPLAINED.items()}
    for name, text in fresh.items():
        pattern = rf"(<!-- {re.escape(name)} -->\n```text\n).*?(\n```)"
        old = re.sub(pattern, lambda found, text=text: found[1] + text + found[2], old, count=1, flags=re.DOTALL)
    return old


def explained(code: Code) -> str:
    """Return what ``kvledger explain`` prints about a refused look-up."""
    with tempfile.TemporaryDirectory() as folder:
        seq = write_log(REFUSED[code](), Path(folder))
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            assert kvledger(["explain", "--seq", str(seq), "--data", folder]) == 0
    return said.getvalue().rstrip("\n")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    sys.stdout.write(f"{PAGE.name} says what the program says\n")
