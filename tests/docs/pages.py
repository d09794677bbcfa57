"""The code on the pages: its blocks, what they print, and the marks of those that can not run here.

A page is one program: its Python blocks run in order and share their names, as a reader would paste them. A comment
`<!-- not run: why -->` before a block leaves it out, `<!-- printed -->` says that a block holds what the one before it
prints. `docs/tutorial.md` is one session of commands and Python instead, and has a test of its own.

Shell lines stand behind the prompt of a `console` block, or as code within a sentence.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md")))
OPS = tuple(sorted(str(p.relative_to(ROOT)) for p in (ROOT / "ops").rglob("*") if p.is_file()))
TUTORIAL = "docs/tutorial.md"

_FENCE = re.compile(r"^```(\w*)\s*$")
_NOT_RUN = re.compile(r"^<!-- not run: (\S.*) -->$")
_PRINTED = "<!-- printed -->"
_SHELL = re.compile(
    r"(alembic|apt|curl|docker|git|journalctl|kill|kvledger|make|mkdir|pip|podman|promtool|psql|pytest|python3?|sqlite3|ssh"
    r"|sudo|systemctl|systemd-\w+|/\S+|\.venv/bin/\S+) "
)
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_STARTED = re.compile(r"^Exec\w+=(.*)", re.MULTILINE)


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
    def typed(self) -> list[str]:
        """The lines behind a prompt, each with what continues it."""
        if self.language != "console":
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]

    @property
    def commands(self) -> list[list[str]]:
        """The words of these lines."""
        return [shlex.split(line, comments=True) for line in self.typed]


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


def spans(page: str) -> Iterator[str]:
    """Yield the code within the sentences of a page, each on one line, and what a unit starts."""
    text = _BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))
    for paragraph in text.split("\n\n"):
        yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", paragraph))
    if page.endswith(".service"):
        yield from _STARTED.findall(text)


def is_shell(line: str) -> bool:
    """Tell whether something is a shell line by the program that it begins with."""
    return _SHELL.match(line) is not None


def shell_lines(page: str) -> Iterator[str]:
    """Yield the shell lines of a page: those behind a prompt, then those within sentences."""
    yield from (line for block in blocks(page) for line in block.typed)
    yield from filter(is_shell, spans(page))


def shell_line(page: str, beginning: str) -> str:
    """Return the first shell line of a page that begins so."""
    return next(line for line in shell_lines(page) if line.startswith(beginning))


def pages_with_python() -> list[str]:
    """Return the pages that hold Python."""
    return [page for page in PAGES if page != TUTORIAL and any(block.language == "python" for block in blocks(page))]


def commands(page: str) -> Iterator[list[str]]:
    """Yield the words of each `kvledger` line that runs with its page."""
    for block in blocks(page):
        if not block.not_run:
            yield from (words for words in block.commands if words[0] == "kvledger")


def pages_with_commands() -> list[str]:
    """Return the pages that hold such lines."""
    return [page for page in PAGES if page != TUTORIAL and any(commands(page))]


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
