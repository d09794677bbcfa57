"""The form of code: lengths as a ratchet, and docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from support.tidy.source import Finding, Source, repository

FUNCTION_LINES = 60
FILE_LINES = 500

# Functions that were longer when the rule came, as path:qualified name to lines. They may shrink, never grow; whoever
# brings one under the limit strikes it out.
KNOWN_LONG: dict[str, int] = {}

SENTENCE_BREAK = re.compile(r"[.!?]\s+[A-Z]")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def function_length(source: Source) -> Iterator[Finding]:
    """No function is longer than 60 lines, its docstring included."""
    if not source.is_python:
        return
    for name, node in functions(source.tree):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        limit = max(FUNCTION_LINES, KNOWN_LONG.get(f"{source.path}:{name}", 0))
        if lines > limit:
            yield source.at(node, f"{name} has {lines} lines, {limit} are the limit: name a part and move it out")


def file_length(source: Source) -> Iterator[Finding]:
    """No file of code is longer than 500 lines."""
    lines = source.text.count("\n")
    if source.is_python and lines > FILE_LINES:
        yield source.at(lines, f"the file has {lines} lines, {FILE_LINES} are the limit: split it by job")


def docstrings_of_tests(source: Source) -> Iterator[Finding]:
    """Every test says in one sentence what is true."""
    name = source.path.rpartition("/")[2]
    if not (source.path.startswith("tests/") and name.startswith("test_") and source.is_python):
        return
    for qualified, node in functions(source.tree):
        if not node.name.startswith("test_") or "<locals>" in qualified:
            continue
        text = ast.get_docstring(node)
        if text is None:
            yield source.at(node, f"{qualified} has no docstring: say in one sentence what is true")
        elif not text.endswith(".") or SENTENCE_BREAK.search(text) or "\n\n" in text:
            yield source.at(node, f"the docstring of {qualified} is not one sentence: end it with one full stop")


def public_docstrings(source: Source) -> Iterator[Finding]:
    """Every module, public class and public function of the packages has a docstring."""
    if not source.is_packaged:
        return
    if source.text.strip() and not ast.get_docstring(source.tree):
        yield source.at(1, "the module has no docstring: say what its one job is and why it is done so")
    yield from _undocumented(source, source.tree, "", frozenset())


def _undocumented(
    source: Source, holder: ast.Module | ast.ClassDef, prefix: str, elsewhere: frozenset[str]
) -> Iterator[Finding]:
    """Yield the public definitions below a module or class without docstring, but for names documented elsewhere."""
    for node in holder.body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_") or node.name in elsewhere:
            continue
        if not ast.get_docstring(node) and not _has_twin(node):
            yield source.at(node, f"{prefix}{node.name} is public and has no docstring: write one, or lead with _")
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(source, node, f"{prefix}{node.name}.", _of_protocols(source, node))


def _of_protocols(source: Source, holder: ast.ClassDef) -> frozenset[str]:
    """Return the methods that are documented by a protocol which the class has as base or names in its docstring."""
    named = {ast.unparse(base) for base in holder.bases}
    named |= set(re.findall(r"`(\w+)`", ast.get_docstring(holder) or ""))
    known = _protocols((source,)) | _repository_protocols()
    return frozenset().union(*(known[name] for name in named if name in known))


def _protocols(sources: tuple[Source, ...]) -> dict[str, frozenset[str]]:
    """Map each protocol and abstract class to the names of the methods that it documents."""
    return {
        node.name: frozenset(part.name for part in node.body if isinstance(part, Function) and ast.get_docstring(part))
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).partition("[")[0].rpartition(".")[2] in {"Protocol", "ABC"} for base in node.bases)
    }


@lru_cache(maxsize=1)
def _repository_protocols() -> dict[str, frozenset[str]]:
    return _protocols(tuple(source for source in repository() if source.is_packaged))


def _has_twin(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Tell whether a function is documented elsewhere: an overload, a setter, an override of a documented method."""
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    return any(mark.rpartition(".")[2] in {"overload", "override", "setter", "deleter"} for mark in marks)


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function below a node with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield f"{prefix}{node.name}", node
            yield from functions(node, f"{prefix}{node.name}.<locals>.")
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        else:
            yield from functions(node, prefix)
