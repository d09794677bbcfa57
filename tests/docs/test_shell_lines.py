"""No shell line of a page goes untried: each is run with its page, by a test that is named here, or told why not.

What runs with its page needs no row: the `kvledger` lines behind a prompt, unless a mark says that they do not. Those
within sentences are run by `test_daemon_lines.py`.
"""

from __future__ import annotations

import argparse
import shlex

from docs.pages import OPS, PAGES, ROOT, blocks, is_shell, spans
from docs.test_daemon_lines import ELSEWHERE
from kvledgerd.commands.table import command_line

RUN_BY = {
    "docs/test_tutorial.py::test_the_tutorial_gets_there_from_nothing": (
        "python3 -m venv ~/kvledger-env",
        "pip install '.[daemon]'",
        "mkdir ~/kvledger-tutorial",
    ),
    "docs/test_tutorial.py::test_the_tutorial_does_what_it_says": (
        "python engine.py",
        "kill -KILL $(cat data/log/lock)",
        "kill %1",
    ),
    "docs/test_install_lines.py::test_the_client_alone_is_all_that_an_engine_needs": ("pip install .",),
    "docs/test_install_lines.py::test_daemon_and_adapter_come_with_their_extras": (
        "pip install '.[daemon,transformers]'",
    ),
    "docs/test_install_lines.py::test_a_page_comes_with_its_extra": ("pip install '.[daemon,page]'",),
    "docs/test_install_lines.py::test_an_audit_database_comes_with_its_extra": (
        "pip install '.[daemon,audit]'",
        "alembic -c migrations/alembic.ini",
    ),
    "docs/test_install_lines.py::test_what_make_installs_runs_and_is_gone_behind_make_uninstall": (
        "make install",
        "make uninstall",
    ),
    "docs/test_checkout_lines.py::test_each_line_is_tried": ("make",),
    "docs/test_checkout_lines.py::test_the_hooks_are_installed": (".venv/bin/pre-commit install",),
    "docs/test_checkout_lines.py::test_a_row_is_found_by_its_id": ("pytest -k",),
    "docs/test_checkout_lines.py::test_parts_and_rates_are_printed": (
        "python benchmarks/lookup_parts.py",
        "python -m kvledger_kernels.rates",
    ),
    "docs/test_daemon_lines.py::test_metrics_are_scraped": ("kvledger metrics --listen",),
    "docs/test_daemon_lines.py::test_a_page_beside_a_daemon_is_served": ("kvledger page --http",),
    "docs/test_daemon_lines.py::test_a_daemon_serves_a_page": (
        "kvledger serve --data /var/lib/kvledger --socket /run/kvledger/kvledger.sock --http",
    ),
    "docs/test_daemon_lines.py::test_a_file_is_followed": ("kvledger audit follow --data /var/lib/kvledger",),
    "docs/test_daemon_lines.py::test_a_server_is_followed": ("kvledger audit follow --data /var/lib/kvledger --db",),
    "docs/test_daemon_lines.py::test_a_tenants_quota_is_shown": ("kvledger quota show --tenant team-a",),
    "docs/test_daemon_lines.py::test_a_hangup_reads_the_rules_again": ("kill -HUP $(cat /var/lib/kvledger/log/lock)",),
    "docs/test_daemon_lines.py::test_an_upgrade_kills_the_daemon_and_not_its_keeper": (
        "kill -KILL $(cat /var/lib/kvledger/log/lock)",
    ),
    "process/test_systemd.py::test_the_line_of_the_page_runs_it_without_a_unit": ("systemd-run --unit=kvledger",),
    "process/test_systemd.py::test_what_the_page_types_enables_it": ("systemd-sysusers", "systemctl enable --now"),
    "process/test_systemd.py::test_a_tenant_has_a_socket_of_its_own": (
        "systemctl enable kvledger@team-a.socket",
        "systemctl stop kvledger.service &&",
    ),
    "process/test_systemd.py::test_a_reload_takes_settings_without_a_restart": (
        "systemctl reload kvledger",
        "/bin/kill -HUP",
    ),
    "process/test_systemd.py::test_a_connection_starts_it": ("/usr/local/bin/kvledger serve",),
    "process/test_systemd.py::test_the_audit_unit_follows": ("/usr/local/bin/kvledger audit follow",),
    "process/test_systemd.py::test_the_page_unit_serves_on_loopback": ("/usr/local/bin/kvledger page",),
}
"""Tests, and the beginnings of the lines that each runs; of several beginnings that fit a line the longest counts."""
NOT_RUN = {
    "podman build": "no container engine: test_container.py builds what the file copies, and runs what it runs",
    "ssh -L": "it needs another machine",
    "systemctl clean --what=fdstore": "it needs systemd 254",
}
"""Beginnings of lines that nothing runs, and why."""


BEGINNINGS = (*(one for several in RUN_BY.values() for one in several), *NOT_RUN)


def lines() -> list[tuple[str, str]]:
    """Return where each line stands that needs a row, and the line."""
    found = []
    for page in (*PAGES, *OPS):
        for block in blocks(page):
            others = (line for line in block.typed if block.not_run or not line.startswith("kvledger "))
            found += [(f"{page}:{block.line}", line) for line in others]
        found += [(page, line) for line in spans(page) if is_shell(line) and not line.startswith("kvledger ")]
    return found


def beginning(line: str) -> str:
    """Return the beginning in the tables that fits a line best, empty if none does."""
    return max((one for one in BEGINNINGS if f"{line} ".startswith(f"{one} ")), key=len, default="")


def test_every_line_has_a_row_and_every_row_a_line():
    """A new line needs a test or a reason, and neither stays behind when the line has gone."""
    found = {at: beginning(at[1]) for at in lines()}
    rowless = [at for at, one in found.items() if not one]
    assert not rowless, f"give each a row, in RUN_BY with its test or in NOT_RUN with the reason: {rowless}"
    assert set(BEGINNINGS) == set(found.values())


def test_the_tests_that_are_named_exist():
    """Each row names a file and a function in it."""
    for named in (*RUN_BY, *ELSEWHERE.values()):
        path, _, function = named.partition("::")
        assert f"def {function}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), named


def test_lines_stand_behind_a_prompt():
    """No line hides in a block without a prompt, where no test would look for it."""
    for page in PAGES:
        for block in blocks(page):
            if block.language == "console":
                assert block.text.startswith("$ "), f"{page}:{block.line}"
            else:
                assert block.language in {"", "text", "python", "toml", "sql"}, f"{page}:{block.line}"
                assert not [line for line in block.text.splitlines() if is_shell(line)], f"{page}:{block.line}"


def test_sentences_name_commands_and_options_that_exist():
    """What a sentence calls a `kvledger` command is one, and takes the options that stand behind it."""
    parser = command_line()
    for page in (*PAGES, *OPS):
        for line in spans(page):
            if line.startswith("kvledger "):
                look_up(parser, shlex.split(line)[1:], f"{page}: {line}")


def look_up(parser: argparse.ArgumentParser, words: list[str], where: str) -> None:
    """Walk the parsers of commands along the words; those in capitals stand for any."""
    for word in words:
        parts = next((one.choices for one in parser._actions if isinstance(one, argparse._SubParsersAction)), {})
        if word.startswith("--"):
            assert word.partition("=")[0] in parser._option_string_actions, where
        elif parts and not word.isupper():
            assert word in parts, where
            parser = parts[word]
