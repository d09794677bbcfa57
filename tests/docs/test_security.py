"""docs/security.md: its example is a configuration, and each claim names tests that exist."""

from __future__ import annotations

import re

from docs.pages import ROOT, blocks, table
from kvledgerd.access import Access
from kvledgerd.server.peer import Peer
from kvledgerd.settings.loading import core_config, load

PAGE = "docs/security.md"


def test_the_example_says_what_the_page_says(tmp_path):
    """The settings load, have room for the tenants that the page speaks of, and give each of its users what it says."""
    file = tmp_path / "kvledger.toml"
    file.write_text(next(block.text for block in blocks(PAGE) if block.language == "toml"))
    config = load(file, {})
    assert (core_config(config).tenants, len(config.listening)) == (4, 3)
    assert config.access.of("team-a", Peer(1, 1002, 5)) == Access("team-a", "reader")
    assert config.access.of("team-a", Peer(1, 7, 5, (2000,))) == Access("team-a", "writer")
    assert config.access.of("team-b", Peer(1, 0, 0)) == Access("team-b", "writer")
    assert config.access.of("kvledger.socket", Peer(1, 1001, 2000)) is None


def test_each_claim_is_shown_by_tests_that_exist():
    """Every row of the promises names tests, by file and function, and each of them is there."""
    for claim, shown in table(PAGE, "## What is promised"):
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", shown)
        assert named, claim
        for path, function in named:
            assert f"def {function}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), f"{path}::{function}"
