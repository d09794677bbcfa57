"""Nothing that is read can run code: no deserialiser that builds arbitrary objects, no text that is run, no hooks.

Whatever comes over a socket, out of a file or out of a database is decoded by msgspec into declared types, or by a
parser of plain values. The rule looks for the ways around that: modules, functions under whatever name they were
imported, arguments that switch a safe reader to an unsafe one, and modules that are named by a text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from support.tidy.source import Finding, Source

MODULES = {
    "cloudpickle": "msgspec",
    "dill": "msgspec",
    "joblib": "msgspec",
    "jsonpickle": "msgspec",
    "marshal": "msgspec",
    "multiprocessing": "subprocess, and msgspec on its pipes",
    "pickle": "msgspec",
    "shelve": "a file of msgspec frames",
}
"""Modules that run what they read, or hand objects over by pickle."""

CALLS = {
    "__import__": "an import statement",
    "compile": "a function",
    "eval": "ast.literal_eval, or a table from name to function",
    "exec": "a function",
    "pandas.read_pickle": "msgspec",
    "concurrent.futures.ProcessPoolExecutor": "threads, or subprocess",
    "sqlalchemy.PickleType": "columns",
    "torch.hub.load": "code of the repository",
    "torch.jit.load": "torch.load with weights_only=True",
    "yaml.load": "yaml.safe_load",
    "yaml.load_all": "yaml.safe_load_all",
    "yaml.full_load": "yaml.safe_load",
    "yaml.unsafe_load": "yaml.safe_load",
}
"""Functions that run what they are given."""

ONLY_WITH = {"torch.load": ("weights_only", True)}
"""Functions that are safe with one argument alone, which has to be written out."""

NEVER_WITH = {"allow_pickle": False, "trust_remote_code": False}
"""Arguments, of whatever function, that switch the reading of code on, and the only value they may have."""

HOOKS = frozenset({"dec_hook", "ext_hook", "object_hook", "object_pairs_hook"})
"""Arguments of decoders through which a message would choose what is called."""

SHORT = {"np": "numpy", "pd": "pandas", "sa": "sqlalchemy"}


def unsafe_code(source: Source) -> Iterator[Finding]:
    """Nothing is read by a deserialiser that can run code, and no text is run as code."""
    if not source.is_python:
        return
    names = _imported(source.tree)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(source, node)
        elif isinstance(node, ast.Call):
            yield from _calls(source, node, names)


def _imported(tree: ast.AST) -> dict[str, str]:
    """Return what local names stand for: `from torch import load as read` makes `read` torch.load."""
    names = dict(SHORT)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
    return names


def _imports(source: Source, node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
    named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    if isinstance(node, ast.ImportFrom) and node.level:
        return
    for top in (name.partition(".")[0] for name in named):
        if top in MODULES:
            yield source.at(node, f"imports {top}, which runs what it reads: use {MODULES[top]}")


def _calls(source: Source, node: ast.Call, names: dict[str, str]) -> Iterator[Finding]:
    head, _, rest = ast.unparse(node.func).partition(".")
    name = f"{names.get(head, head)}.{rest}" if rest else names.get(head, head)
    given = {word.arg: word.value for word in node.keywords if word.arg}
    if name in CALLS:
        yield source.at(node, f"calls {name}: use {CALLS[name]}")
    if name in ONLY_WITH:
        word, value = ONLY_WITH[name]
        if not _is(given.get(word), value=value):
            yield source.at(node, f"calls {name} without {word}={value}")
    for word, value in given.items():
        if word in HOOKS:
            yield source.at(node, f"passes {word} to a decoder: declare the type instead")
        elif word in NEVER_WITH and not _is(value, value=NEVER_WITH[word]):
            yield source.at(node, f"passes {word}: leave it out, or write {word}={NEVER_WITH[word]}")
    if name.endswith("import_module") and node.args and _text(node.args[0]).partition(".")[0] in MODULES:
        yield source.at(node, f"imports {_text(node.args[0])} by its name")


def _is(node: ast.expr | None, *, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
