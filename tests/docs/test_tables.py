"""The tables of the pages for operators hold what the program holds."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from typing import get_args

import msgspec
import pytest

from docs.pages import ROOT, table
from kvledger_storage.events import Event
from kvledgerd.exits import Exit
from kvledgerd.life.live_settings import LIVE
from kvledgerd.settings.table import SETTINGS, Setting
from model.mutants import MUTANTS
from sabotage.test_sabotage import ALL

OPERATIONS, SETTINGS_PAGE = "docs/operations.md", "docs/settings.md"
sys.path.append(str(ROOT / "scripts"))
UNITS = ((1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def shown(row: Setting, value: object) -> str:
    """Return a value as the page writes it."""
    if row.kind is bool:
        return str(value).lower()
    if not isinstance(value, int):
        return f"`{value}`" if str(value) else "none"
    unit, name = (
        next(((u, n) for u, n in UNITS if value and value % u == 0), (1, "")) if row.unit == "bytes" else (1, "")
    )
    return f"{value // unit:,} {name or row.unit}".rstrip()


def bounds(row: Setting) -> str:
    """Return what a value may be as the page writes it."""
    if row.low is None:
        return ""
    low = shown(row, row.low) if row.unit == "bytes" and row.low else f"{row.low:,}"
    return f"{low} to {shown(row, row.high)}"


def settings_rows() -> list[list[str]]:
    """Return the rows of the table of settings."""
    return [[f"`{row.name}`", shown(row, row.default), bounds(row), row.does] for row in SETTINGS.values()]


def exit_rows() -> list[list[str]]:
    """Return the rows of the table of exit codes, from the docstrings below their names."""
    body = ast.parse(textwrap.dedent(inspect.getsource(Exit))).body[0].body
    said = [node.value.value for node in body if isinstance(node, ast.Expr)][1:]
    return [[str(int(code)), f"`{code.name}`", why] for code, why in zip(Exit, said, strict=True)]


def lines(rows: list[list[str]]) -> str:
    """Return rows as Markdown, for a message that can be pasted into the page."""
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)


def test_the_page_lists_all_settings():
    """The table of settings has each row of the program, with its default, bounds and purpose."""
    assert table(SETTINGS_PAGE, "## All settings") == settings_rows(), f"the rows are:\n{lines(settings_rows())}"


def test_the_page_lists_the_settings_that_change_while_it_runs():
    """What SIGHUP takes is told by name, and nothing else is."""
    text = (ROOT / SETTINGS_PAGE).read_text(encoding="utf-8")
    told = text.partition("or none if a value is wrong:")[2].partition(". Changes of all others")[0]
    assert tuple(word.strip("` ") for word in told.replace("\n", " ").split(",")) == LIVE
    assert set(LIVE) <= set(SETTINGS)


def test_the_page_lists_all_exit_codes():
    """The table of exit codes says what the program says of each."""
    assert table(OPERATIONS, "## Exit codes") == exit_rows(), f"the rows are:\n{lines(exit_rows())}"


@pytest.mark.parametrize("name", ["commands_page", "events_page", "metrics_table"])
def test_pages_made_from_code_are_fresh(name):
    """The references of commands, events and metrics are what their scripts write; rerun the script if this fails."""
    script = importlib.import_module(name)
    text = script.PAGE.read_text(encoding="utf-8")
    assert text == script.page(text), f"run: python scripts/{name}.py"


def test_every_event_and_every_field_is_described():
    """No event goes without a sentence, and no table leaves out a field that others of it have."""
    script = importlib.import_module("events_page")
    text = script.PAGE.read_text(encoding="utf-8")
    for event in get_args(Event):
        section = text.split(f"\n### {event.__name__}\n")[1].split("\n### ")[0]
        assert all(f"`{field.name}`" in section for field in msgspec.structs.fields(event)), event.__name__


def test_the_page_counts_the_lies():
    """Durability names as many lies as the tables of sabotage hold, and as many more as that of the explorer."""
    text = (ROOT / "docs/durability.md").read_text(encoding="utf-8")
    told = re.search(r"puts each of (\d+) lies in place.*has (\d+) more, for the explorer", text, re.DOTALL)
    assert told is not None
    assert tuple(map(int, told.groups())) == (len(ALL), len(MUTANTS))


def test_the_page_lists_all_commands():
    """The table of commands names each command of the program, and none that it does not have."""
    from kvledgerd.commands.table import _COMMANDS

    named = {row[0].split("`")[1].split()[1] for row in table(OPERATIONS, "## Commands")}
    assert named == {command.__name__.rpartition(".")[2] for command in _COMMANDS}


def test_the_change_log_speaks_to_operators_and_to_adapter_authors():
    """Both kinds of readers find what is new for them: neither part was lost to an edit of the other."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    operators, _, authors = text.partition("### For adapter authors")
    assert "### For operators" in operators
    assert all(part.count("\n- ") > 20 for part in (operators, authors))
