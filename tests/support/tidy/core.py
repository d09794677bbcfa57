"""What the core of the daemon may not do, because a replay of the log must arrive at the same state anywhere.

Clock, random numbers, environment, files, threads and the order of a set differ from run to run. The core gets what it
needs of them as arguments, and what it wants done it hands out as effects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from support.tidy.imports import below, imported
from support.tidy.source import Finding, Source, repository

_SHELL = "hand out an effect, and let the shell do it"
_CLOCK = "take `now` from the caller of decide"
_CHANCE = "take the number from the command or the event"
BANNED_MODULES = {
    "anyio": _SHELL,
    "asyncio": _SHELL,
    "concurrent": _SHELL,
    "ctypes": _SHELL,
    "datetime": _CLOCK,
    "io": _SHELL,
    "logging": "put it into the decision as an event or a reply",
    "mmap": _SHELL,
    "multiprocessing": _SHELL,
    "os": "take settings as arguments; " + _SHELL,
    "pathlib": _SHELL,
    "queue": _SHELL,
    "random": _CHANCE,
    "secrets": _CHANCE,
    "select": _SHELL,
    "selectors": _SHELL,
    "shutil": _SHELL,
    "signal": _SHELL,
    "socket": _SHELL,
    "sqlite3": _SHELL,
    "subprocess": _SHELL,
    "tempfile": _SHELL,
    "threading": "one task drives the core, so it needs no lock",
    "time": _CLOCK,
    "torch": _SHELL,
    "uuid": _CHANCE,
}
BANNED_NAMES = {
    "breakpoint": "remove it",
    "environ": "take settings as arguments",
    "float": "use integers: nanoseconds, bytes, parts per million",
    "hash": "use a digest (blake3, xxhash): hash() of bytes differs from run to run",
    "id": "use a number from the state: addresses differ from run to run",
    "input": _SHELL,
    "open": _SHELL,
    "print": "put it into the decision as an event or a reply",
}
SET_TYPES = frozenset({"set", "frozenset", "Set", "AbstractSet", "MutableSet"})
SET_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference"})
ORDER_FREE = frozenset({"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"})
TAKES_IN_ORDER = frozenset({"enumerate", "iter", "list", "map", "next", "tuple", "zip"})


def core_purity(source: Source) -> Iterator[Finding]:
    """The core calls no clock, chance, environment, file, socket or thread, and knows no floats."""
    if not source.is_core:
        return
    for node, name, _ in imported(source):
        for banned, instead in BANNED_MODULES.items():
            if below(name, banned):
                yield source.at(node, f"the core imports {banned}: {instead}")
    for part in ast.walk(source.tree):
        says = _impure(part)
        if says:
            yield source.at(part, f"the core {says}")


def _impure(node: ast.AST) -> str | None:
    """Say what is impure in one node, or None."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in BANNED_NAMES:
        return f"uses {node.id}: {BANNED_NAMES[node.id]}"
    if isinstance(node, ast.Constant) and isinstance(node.value, float | complex):
        return f"holds the float {node.value}: {BANNED_NAMES['float']}"
    if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
        return "divides into a float: use // on integers"
    return None


def core_set_order(source: Source) -> Iterator[Finding]:
    """The core never takes the elements of a set in the order in which they come."""
    if not source.is_core:
        return
    attributes = _set_attributes((source,)) | _repository_attributes()
    for scope in _scopes(source.tree):
        names = _set_names(scope, attributes)
        for node in _ordered_uses(scope, names, attributes):
            yield source.at(node, "the core iterates over a set, whose order differs: use sorted(...) or a dict")


def _scopes(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the outermost functions, and the module with only what lies outside of them."""
    functions = [
        node
        for holder in ast.walk(tree)
        if isinstance(holder, ast.Module | ast.ClassDef)
        for node in holder.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    yield from functions
    rest = [stmt for stmt in tree.body if stmt not in functions and not isinstance(stmt, ast.ClassDef)]
    yield ast.Module(body=rest, type_ignores=[])


def _set_names(scope: ast.AST, attributes: frozenset[str]) -> frozenset[str]:
    """Collect the local names of a scope that hold sets."""
    names: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.arg) and node.annotation and _set_annotation(node.annotation):
            names.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _set_annotation(node.annotation):
            names.add(node.target.id)
        elif isinstance(node, ast.Assign) and _is_set(node.value, frozenset(names), attributes):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(names)


def _set_attributes(sources: tuple[Source, ...]) -> frozenset[str]:
    """Collect attribute names that classes declare as sets; one that another class declares otherwise is left out."""
    sets: set[str] = set()
    others: set[str] = set()
    for source in sources:
        for holder in ast.walk(source.tree):
            for node in holder.body if isinstance(holder, ast.ClassDef) else ():
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    (sets if _set_annotation(node.annotation) else others).add(node.target.id)
    return frozenset(sets - others)


@lru_cache(maxsize=1)
def _repository_attributes() -> frozenset[str]:
    return _set_attributes(tuple(source for source in repository() if source.is_core))


def _set_annotation(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _set_annotation(node.left) or _set_annotation(node.right)
    base = node.value if isinstance(node, ast.Subscript) else node
    return ast.unparse(base).rpartition(".")[2] in SET_TYPES


def _is_set(node: ast.expr, names: frozenset[str], attributes: frozenset[str]) -> bool:
    """Tell whether an expression surely is a set."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Attribute):
        return node.attr in attributes
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return _is_set(node.left, names, attributes) or _is_set(node.right, names, attributes)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in {*SET_METHODS, "copy"} and _is_set(node.func.value, names, attributes)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"set", "frozenset"}


def _ordered_uses(scope: ast.AST, names: frozenset[str], attributes: frozenset[str]) -> Iterator[ast.expr]:
    """Yield the sets of a scope whose elements are taken one after the other where the order can be seen."""
    harmless = {
        id(argument)
        for node in ast.walk(scope)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ORDER_FREE
        for argument in node.args
    }
    for node in ast.walk(scope):
        taken: list[ast.expr] = []
        if isinstance(node, ast.For):
            taken = [node.iter]
        elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp) and id(node) not in harmless:
            taken = [part.iter for part in node.generators]
        elif isinstance(node, ast.Starred):
            taken = [node.value]
        elif isinstance(node, ast.Call):
            taken = _taken_by_call(node)
        yield from (part for part in taken if _is_set(part, names, attributes))


def _taken_by_call(node: ast.Call) -> list[ast.expr]:
    """Return what a call takes the elements of, one after the other."""
    if isinstance(node.func, ast.Name) and node.func.id in TAKES_IN_ORDER:
        return node.args
    if isinstance(node.func, ast.Attribute) and node.func.attr in {"join", "extend"}:
        return node.args
    if isinstance(node.func, ast.Attribute) and node.func.attr == "pop" and not node.args:
        return [node.func.value]
    return []
