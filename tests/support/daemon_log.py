"""What a daemon has written to its log, which goes on being written while it is read."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["logged", "whole_lines"]


def whole_lines(path: Path) -> list[str]:
    """Return the lines of a log; one that is just being written does not count."""
    return path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]


def logged(path: Path, event: str = "") -> list[dict]:
    """Return the lines that are objects; those of one event if it is named."""
    found = [json.loads(line) for line in whole_lines(path) if line.startswith("{")]
    return [line for line in found if line["event"] == event] if event else found
