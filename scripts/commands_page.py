"""Write docs/commands.md anew from the parsers of the commands, which are its only source.

Usage: .venv/bin/python scripts/commands_page.py
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator
from pathlib import Path

from kvledgerd.commands.table import command_line

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
HEADING = "## Every command\n"
EVERYWHERE = ("data", "socket", "json")
"""Options that mean the same wherever they are taken."""


def page(old: str) -> str:
    """Return the page with fresh sections behind its heading."""
    return old.partition(HEADING)[0] + HEADING + "".join(f"\n{section}" for section in sections(command_line(), ""))


def sections(parser: argparse.ArgumentParser, told: str) -> Iterator[str]:
    """Yield the section of a command, then those of its parts."""
    parts = next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)  # noqa: SLF001  argparse has no public way to walk a parser
    if parser.prog != "kvledger":
        yield section(parser, parser.description or told, [] if parts is None else list(parts.choices))
    if parts is not None:
        helps = {action.dest: action.help or "" for action in parts._choices_actions}  # noqa: SLF001  as above
        for name, part in parts.choices.items():
            yield from sections(part, helps.get(name, ""))


def section(parser: argparse.ArgumentParser, told: str, parts: list[str]) -> str:
    """Return heading, description and options of one command."""
    options = [action for action in parser._actions if action.dest != "help"]  # noqa: SLF001  as above
    own = [a for a in options if a.dest not in EVERYWHERE and not isinstance(a, argparse._SubParsersAction)]  # noqa: SLF001  as above
    shared = [f"`--{action.dest}`" for action in options if action.dest in EVERYWHERE]
    lines = [f"### {parser.prog}\n", f"{described(told)}\n"]
    if parts:
        lines.append("Parts: " + ", ".join(f"`{part}`" for part in parts) + ".\n")
    if own:
        rows = (f"| `{shown(spelled(action))}` | {shown(action.help or '')} |" for action in own)
        lines.append("\n".join(("| option | what it does |", "|---|---|", *rows)) + "\n")
    if shared:
        lines.append(f"Takes {', '.join(shared)}.\n")
    return "\n".join(lines)


def described(told: str) -> str:
    """Return a command's description as a sentence of a page."""
    text = " ".join(inspect.cleandoc(told).replace("``", "`").split())
    text = text.split(": ", 1)[1] if text.startswith("`kvledger ") and ": " in text else text
    return (text[0].upper() + text[1:]).rstrip(".") + "."


def shown(text: str) -> str:
    """Return a text as a cell of a table can hold it."""
    return text.replace("|", "\\|")


def spelled(action: argparse.Action) -> str:
    """Return an option as one types it."""
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.choices is not None and action.metavar is None:
        value = "/".join(map(str, action.choices))
    if not action.option_strings:
        return value
    name = action.option_strings[-1]
    if action.nargs == 0:
        return name
    return f"{name} [{value}]" if action.nargs == "?" else f"{name} {value}"


def main() -> None:
    """Replace what stands behind the heading."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
