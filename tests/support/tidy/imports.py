"""Import direction: kvledger < kvledger_kernels < kvledger_storage < kvledgerd, with adapters and testing on top."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from support.tidy.source import Finding, Source

OURS = ("kvledger", "kvledger_kernels", "kvledger_storage", "kvledgerd")
CLIENT_LIBRARIES = frozenset({"anyio", "blake3", "msgspec", "structlog", "xxhash"})
CORE_LIBRARIES = frozenset({"blake3", "msgspec", "xxhash"})
ON_TOP = ("kvledger.adapters", "kvledger.testing")


@dataclass(frozen=True)
class Zone:
    """What the modules below one prefix may import.

    `packages` are ours that may be imported, `lazily` those only inside a function or for types, `never` exceptions
    to `packages`; `libraries` are the foreign ones besides the standard library, None for any.
    """

    prefix: str
    packages: tuple[str, ...]
    never: tuple[str, ...] = ON_TOP
    lazily: tuple[str, ...] = ()
    libraries: frozenset[str] | None = None


# The first prefix that fits decides.
ZONES = (
    Zone("kvledger.adapters", ("kvledger", "kvledger_kernels"), never=(), lazily=("kvledger_kernels",)),
    Zone("kvledger.testing", ("kvledger",), never=("kvledger.adapters",), libraries=CLIENT_LIBRARIES),
    Zone("kvledger", ("kvledger",), libraries=CLIENT_LIBRARIES),
    Zone("kvledger_kernels", OURS[:2]),
    Zone("kvledger_storage", OURS[:3]),
    Zone("kvledgerd.core", OURS, libraries=CORE_LIBRARIES),
    # Demo, benchmarks and the checks of a GPU use the cache as its users do: from outside, with a daemon of their own.
    Zone("kvledgerd.demo", OURS, never=()),
    Zone("kvledgerd.bench", OURS, never=("kvledger.adapters",)),
    Zone("kvledgerd.gpu", OURS, never=()),
    Zone("kvledgerd", OURS, never=("kvledger.testing",)),
)


def import_direction(source: Source) -> Iterator[Finding]:
    """Imports run downwards only, and the client brings in no library beyond its five."""
    if not source.is_packaged:
        return
    zone = next(zone for zone in ZONES if below(source.module, zone.prefix))
    for node, name, lazy in imported(source):
        says = _objection(zone, name, lazy=lazy)
        if says:
            yield source.at(node, says)


def _objection(zone: Zone, name: str, *, lazy: bool) -> str | None:
    """Say what is wrong with one import in a zone, or None."""
    top = name.partition(".")[0]
    if top not in OURS:
        if top in sys.stdlib_module_names or zone.libraries is None or top in zone.libraries:
            return None
        allowed = ", ".join(sorted(zone.libraries))
        return f"{zone.prefix} imports {top}: use the standard library or one of {allowed}, or move the code upwards"
    if top not in zone.packages or any(below(name, prefix) for prefix in zone.never):
        return f"{zone.prefix} imports {name} from above: move what both need down, or pass it in as an argument"
    if not lazy and any(below(name, prefix) for prefix in zone.lazily):
        return f"{zone.prefix} imports {name} at import time: import it inside the function that needs it"
    return None


def below(name: str, prefix: str) -> bool:
    """Tell whether a dotted name is the prefix or lies below it."""
    return name == prefix or name.startswith(f"{prefix}.")


def imported(source: Source) -> Iterator[tuple[ast.stmt, str, bool]]:
    """Yield each import of a file: the statement, the full dotted name, and whether it is lazy or for types only."""
    yield from _walk(source, source.tree, lazy=False)


def _walk(source: Source, parent: ast.AST, *, lazy: bool) -> Iterator[tuple[ast.stmt, str, bool]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(source, node)
            yield from ((node, f"{base}.{alias.name}", lazy) for alias in node.names)
        else:
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _for_types(node)
            yield from _walk(source, node, lazy=lazy or inside)


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    """Resolve the module of a `from` import, relative ones against the file's own place."""
    if not node.level:
        return node.module or ""
    parts = source.module.split(".")
    if source.path.endswith("/__init__.py"):
        parts.append("__init__")
    return ".".join([*parts[: len(parts) - node.level], *([node.module] if node.module else [])])
