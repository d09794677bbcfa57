"""The files that rules are about, and what a rule answers."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE_ROOTS = ("client", "kernels", "storage", "daemon")
CODE_ROOTS = (*PACKAGE_ROOTS, "tests", "benchmarks", "scripts", "migrations")
FOLDERS = (*CODE_ROOTS, "docs", "ops", ".ci")
TEXT_SUFFIXES = frozenset({".md", ".py", ".pyi", ".service", ".sh", ".socket", ".toml", ".yaml", ".yml"})
TEXT_NAMES = frozenset({"Makefile", "Containerfile", "run"})


@dataclass(frozen=True)
class Finding:
    """One offence: where it stands and what to write instead."""

    path: str
    line: int
    says: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.says}"


@dataclass(frozen=True)
class Source:
    """One file: its path below the repository, with forward slashes, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of a Python file."""
        return ast.parse(self.text, self.path)

    @property
    def is_python(self) -> bool:
        """Whether the file is Python code."""
        return self.path.endswith(".py")

    @property
    def is_packaged(self) -> bool:
        """Whether the file is a module of one of the four packages."""
        return self.is_python and self.path.split("/", 1)[0] in PACKAGE_ROOTS

    @property
    def is_core(self) -> bool:
        """Whether the file belongs to the pure core of the daemon."""
        return self.path.startswith("daemon/kvledgerd/core/") and self.is_python

    @property
    def module(self) -> str:
        """The name under which the file is imported, for files of the packages."""
        parts = self.path.removesuffix(".py").split("/")[1:]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def at(self, node: ast.AST | int, says: str) -> Finding:
        """Make a finding at a node or a line of this file."""
        return Finding(self.path, node if isinstance(node, int) else getattr(node, "lineno", 1), says)


@lru_cache(maxsize=1)
def repository() -> tuple[Source, ...]:
    """Read every text file of the repository once; data, caches and build output are left out."""
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in FOLDERS:
        found += (ROOT / folder).rglob("*")
    return tuple(
        Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(found)
        if path.is_file() and (path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES)
    )
