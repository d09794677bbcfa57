"""The code on the pages: its blocks, what they print, and the marks of those that can not run here.

A page is one program: its Python blocks run in order and share their names, as a reader would paste them. A comment
`<!-- not run: why -->` before a block leaves it out, `<!-- printed -->` says that a block holds what the one before it
prints. `docs/tutorial.md` is one session of commands and Python instead, and has a test of its own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md")))
PROGRAMS = ("kvledger", "make", "pip")
TUTORIAL = "docs/tutorial.md"

_FENCE = re.compile(r"^```(\w*)\s*$")
_NOT_RUN = re.compile(r"^<!-- not run: (\S.*) -->$")
_PRINTED = "<!-- printed -->"


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        page: Path of the page, from the root of the repository.
        line: Number of its first line.
        language: What stands behind the fence.
        text: Its lines.
        mark: The line before the fence.
    """

    page: str
    line: int
    language: str
    text: str
    mark: str

    @property
    def not_run(self) -> str:
        """Why it is not run; empty if it is."""
        found = _NOT_RUN.match(self.mark)
        return found[1] if found else ""

    @property
    def is_printed(self) -> bool:
        """Whether it is what the block before it prints."""
        return self.mark == _PRINTED

    @property
    def commands(self) -> list[list[str]]:
        """The command lines in it: those with a prompt, and in a block without language those of known programs."""
        lines = self.text.splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        elif self.language in {"", "text"}:
            lines = [line for line in lines if line.split(" ")[0] in PROGRAMS]
        else:
            return []
        return [shlex.split(line, comments=True) for line in lines]


def blocks(page: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    opened: tuple[int, str, str] | None = None
    before, held = "", []
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, held = (number + 1, fence[1], before), []
        elif opened is not None and fence:
            yield Block(page, opened[0], opened[1], "\n".join(held) + "\n", opened[2])
            opened = None
        elif opened is not None:
            held.append(line)
        before = line.strip() or before


def pages_with_python() -> list[str]:
    """Return the pages that hold Python."""
    return [page for page in PAGES if page != TUTORIAL and any(block.language == "python" for block in blocks(page))]


def pages_with_commands() -> list[str]:
    """Return the pages that hold command lines."""
    return [page for page in PAGES if page != TUTORIAL and any(block.commands for block in blocks(page))]


def table(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, its head left out."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text.split(f"\n{heading}\n", 1)[1].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows
