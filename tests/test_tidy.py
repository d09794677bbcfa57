"""Style as a test: what the linter has no rule for, checked over the whole repository.

Each rule also runs over snippets that break it and over some that only look as if they did.
"""

from __future__ import annotations

import re

import pytest

from support.tidy import core, form, imports, source, text, unsafe

RULES = {
    rule.__name__: rule
    for rule in (
        imports.import_direction,
        core.core_purity,
        core.core_set_order,
        unsafe.unsafe_code,
        form.function_length,
        form.file_length,
        form.docstrings_of_tests,
        form.public_docstrings,
        text.reminders,
        text.waivers,
        text.home_paths,
        text.links,
    )
}

CLIENT = "client/kvledger/module.py"
ADAPTER = "client/kvledger/adapters/engine.py"
KERNELS = "kernels/kvledger_kernels/module.py"
STORAGE = "storage/kvledger_storage/module.py"
CORE = "daemon/kvledgerd/core/module.py"
SHELL = "daemon/kvledgerd/module.py"
TEST = "tests/unit/test_module.py"
PAGE = "docs/README.md"

SEAM = "'A job.'\nclass A(Protocol):\n    'A.'\n    def f(self): 'F.'\n"

# rule, path, text, what the message says
BAD = [
    ("import_direction", CLIENT, "import torch", "use the standard library or one of anyio"),
    ("import_direction", CLIENT, "import kvledger_kernels.pack", "from above"),
    ("import_direction", CLIENT, "def f():\n    from kvledger import adapters", "from above"),
    ("import_direction", CLIENT, "from . import testing", "imports kvledger.testing from above"),
    ("import_direction", "client/kvledger/__init__.py", "from .adapters import engine", "kvledger.adapters.engine"),
    ("import_direction", ADAPTER, "from kvledger_kernels import pack", "inside the function that needs it"),
    ("import_direction", ADAPTER, "def f():\n    import kvledger_storage", "from above"),
    ("import_direction", KERNELS, "from kvledger_storage import log", "pass it in as an argument"),
    ("import_direction", STORAGE, "import kvledgerd", "move what both need down"),
    ("import_direction", CORE, "import numpy", "or one of blake3, msgspec, xxhash"),
    ("core_purity", CORE, "import time", "take `now`"),
    ("core_purity", CORE, "from os import environ", "take settings as arguments"),
    ("core_purity", CORE, "from datetime import datetime", "take `now`"),
    ("core_purity", CORE, "import uuid", "from the command or the event"),
    ("core_purity", CORE, "x = open('f')", "hand out an effect"),
    ("core_purity", CORE, "x = hash(b'')", "use a digest"),
    ("core_purity", CORE, "x = 0.5", "use integers"),
    ("core_purity", CORE, "def f(x: float): ...", "use integers"),
    ("core_purity", CORE, "x = a / b", "use // on integers"),
    ("core_set_order", CORE, "for x in {1, 2}: ...", "use sorted(...) or a dict"),
    ("core_set_order", CORE, "def f(s: set[int]):\n    return [x for x in s]", ":2: the core iterates"),
    ("core_set_order", CORE, "def f(a, b):\n    c = set(a) - b\n    return list(c)", ":3: the core iterates"),
    ("core_set_order", CORE, "class A:\n    s: frozenset[int]\ndef f(a):\n    return (*a.s,)", ":4: the core"),
    ("core_set_order", CORE, "def f(s: set[int]):\n    return s.pop()", "iterates over a set"),
    ("unsafe_code", SHELL, "import pickle", "use msgspec"),
    ("unsafe_code", TEST, "from marshal import loads", "use msgspec"),
    ("unsafe_code", SHELL, "x = eval('1')", "ast.literal_eval"),
    ("unsafe_code", SHELL, "x = yaml.load(f)", "yaml.safe_load"),
    ("unsafe_code", SHELL, "import dill", "use msgspec"),
    ("unsafe_code", SHELL, "import shelve as s", "use a file of msgspec frames"),
    ("unsafe_code", SHELL, "def f():\n    from multiprocessing import Pipe", "use subprocess"),
    ("unsafe_code", KERNELS, "x = torch.load(f)", "without weights_only=True"),
    ("unsafe_code", KERNELS, "x = torch.load(f, weights_only=False)", "without weights_only=True"),
    ("unsafe_code", KERNELS, "from torch import load as read\nread(f)", ":2: calls torch.load"),
    ("unsafe_code", KERNELS, "import numpy as n\nx = n.load(f, allow_pickle=True)", "leave it out"),
    ("unsafe_code", KERNELS, "x = np.load(f, allow_pickle=flag)", "leave it out"),
    ("unsafe_code", ADAPTER, "m = Auto.from_pretrained(n, trust_remote_code=True)", "leave it out"),
    ("unsafe_code", STORAGE, "d = msgspec.msgpack.Decoder(T, ext_hook=f)", "declare the type"),
    ("unsafe_code", STORAGE, "d = json.loads(t, object_hook=f)", "declare the type"),
    ("unsafe_code", STORAGE, "c = Column(sqlalchemy.PickleType())", "use columns"),
    ("unsafe_code", SHELL, "m = importlib.import_module('pickle')", "imports pickle by its name"),
    ("unsafe_code", SHELL, "m = __import__('pickle')", "an import statement"),
    ("unsafe_code", "migrations/env.py", "import pickle", "use msgspec"),
    ("unsafe_code", "scripts/tool.py", "exec(compile(t, 'f', 'exec'))", "use a function"),
    ("function_length", SHELL, "class A:\n  def f():\n" + "    x = 1\n" * 60, "A.f has 61 lines, 60 are the limit"),
    ("file_length", SHELL, "x = 1\n" * 501, "split it by job"),
    ("docstrings_of_tests", TEST, "def test_a(): ...", "say in one sentence"),
    ("docstrings_of_tests", TEST, "class TestA:\n    def test_a(self): 'One. Two.'", "TestA.test_a is not one"),
    ("docstrings_of_tests", TEST, "async def test_a(): 'No full stop'", "full stop"),
    ("public_docstrings", SHELL, "x = 1", "what its one job is"),
    ("public_docstrings", SHELL, "'A job.'\ndef f(): ...", "f is public and has no docstring"),
    ("public_docstrings", SHELL, "'A job.'\nclass A:\n    'A.'\n    def f(self): ...", "A.f is public"),
    ("public_docstrings", SHELL, f"{SEAM}class B:\n    'No seam.'\n    def f(self): ...", "B.f is public"),
    ("reminders", SHELL, "x = 1  # TO" + "DO later", "open an issue"),
    ("reminders", PAGE, "FIX" + "ME", "do it now"),
    ("waivers", SHELL, "import os  # noqa: F401", "write why behind it"),
    ("waivers", SHELL, "x = 1  # type: ignore[misc]", "mend what it hides"),
    ("home_paths", PAGE, "see /" + "home/me/kvledger", "make it relative"),
    ("home_paths", SHELL, "p = '/" + "root/x'", "make it relative"),
    ("links", PAGE, "# A\n[a](absent.md)", "docs/README.md:2: the link absent.md leads nowhere"),
    ("links", PAGE, "[a](../../elsewhere.md)", "out of the repository"),
    ("links", PAGE, "# One thing\n[a](#other)", "use one of one-thing"),
    ("links", PAGE, "[a]: absent.md", "leads nowhere"),
]

# rule, path, text that keeps it
GOOD = [
    ("import_direction", CLIENT, "import os\nimport msgspec\nfrom .layout import Layout"),
    ("import_direction", ADAPTER, "import torch\ndef f():\n    from kvledger_kernels import pack"),
    ("import_direction", ADAPTER, "if TYPE_CHECKING:\n    from kvledger_kernels import pack"),
    ("import_direction", SHELL, "from kvledger_storage import log\nfrom kvledger.adapters import engine"),
    ("core_purity", SHELL, "import time\nx = hash(b'') / 2.0"),
    ("core_purity", CORE, "import hashlib\nx = 7 // 2"),
    ("core_set_order", CORE, "def f(s: set[int]):\n    return sorted(x for x in s), len(s), 3 in s"),
    ("core_set_order", CORE, "def f(s: dict[int, int]):\n    return list(s), s.pop(1)"),
    ("unsafe_code", SHELL, "model.eval()\nx = yaml.safe_load(f)"),
    ("unsafe_code", KERNELS, "x = torch.load(f, weights_only=True), np.load(f), np.load(f, allow_pickle=False)"),
    ("unsafe_code", STORAGE, "d = msgspec.msgpack.Decoder(T)\nr = re.compile(t)\nfrom .pickle import x"),
    ("function_length", SHELL, "def f():\n" + "    x = 1\n" * 59),
    ("docstrings_of_tests", TEST, "def test_a():\n    'A frame of 1.5 MiB is refused.'\n    def test_b(): ..."),
    ("public_docstrings", SHELL, "'A job.'\ndef _f(): ...\nclass _A:\n    def f(self): ..."),
    ("public_docstrings", SHELL, "'A job.'\nclass A:\n    'A.'\n    @a.setter\n    def a(self, value): ..."),
    ("public_docstrings", SHELL, f"{SEAM}class B:\n    'An `A`.'\n    def f(self): ..."),
    ("waivers", SHELL, "x = 1  # noqa: S310, S311 - a constant URL\ny = '# noqa'"),
    ("waivers", SHELL, "x = 1  # type: ignore[misc]  # the stub is wrong"),
    ("home_paths", PAGE, "https://example.org/home/page and framework/root/x"),
    ("links", PAGE, "# One `thing`\n[a](#one-thing) [b](https://example.org) [c](decisions/README.md) `[d](e)`"),
]


@pytest.mark.hostile("SC01")
@pytest.mark.parametrize("rule", RULES)
def test_repository_keeps_rule(rule):
    """No file of the repository breaks the rule."""
    findings = [finding for file in source.repository() for finding in RULES[rule](file)]

    assert not findings, "\n" + "\n".join(map(str, findings))


@pytest.mark.hostile("SC01")
@pytest.mark.parametrize(("rule", "path", "snippet", "says"), BAD)
def test_rule_finds_bad_snippet(rule, path, snippet, says):
    """A snippet that breaks a rule is found, with its file, its line and what to write instead."""
    findings = [str(finding) for finding in RULES[rule](source.Source(path, snippet))]

    assert len(findings) >= 1
    assert says in findings[0]
    assert findings[0].startswith(f"{path}:")


@pytest.mark.parametrize(("rule", "path", "snippet"), GOOD)
def test_rule_accepts_good_snippet(rule, path, snippet):
    """A snippet that only looks like an offence is let through."""
    assert [str(finding) for finding in RULES[rule](source.Source(path, snippet))] == []


def test_every_rule_can_fail():
    """Each rule has at least one snippet that breaks it."""
    assert {rule for rule, *_ in BAD} == set(RULES)


def test_repository_is_read():
    """The rules look at all four packages, at the tests and at the pages."""
    seen = {file.path.split("/", 1)[0] for file in source.repository()}

    assert {*source.PACKAGE_ROOTS, "tests", "scripts", "docs", "Makefile", "pyproject.toml"} <= seen


def test_known_long_functions_are_still_long():
    """A function that came under the limit is struck from the list, so that it can not grow again."""
    lengths = {
        f"{file.path}:{name}": node.end_lineno - node.lineno + 1
        for file in source.repository()
        if file.is_python
        for name, node in form.functions(file.tree)
    }
    shrunk = {name for name, lines in form.KNOWN_LONG.items() if lengths.get(name, 0) < lines}

    assert not shrunk, f"lower or strike out in tests/support/tidy/form.py: {sorted(shrunk)}"


def test_linter_exceptions_have_reasons():
    """Each rule that pyproject.toml switches off carries its reason on the same line."""
    lines = (source.ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    exceptions = [line for line in lines if re.match(r'    "[A-Z]+\d*",', line)]

    assert len(exceptions) >= 10
    assert [line for line in exceptions if not re.search(r"#\s+\w+,? \w+", line)] == []


def test_every_page_is_in_the_index():
    """Each page below docs/ is linked from docs/README.md or, for decisions, from their own index."""
    pages = {file.path: file.text for file in source.repository() if file.path.startswith("docs/")}
    missing = [
        path
        for path in pages
        if path != "docs/README.md"
        and f"({path.removeprefix('docs/')}" not in pages["docs/README.md"]
        and f"({path.removeprefix('docs/decisions/')}" not in pages["docs/decisions/README.md"]
    ]

    assert not missing, f"add to docs/README.md, in reading order: {missing}"
