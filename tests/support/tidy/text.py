"""Rules about plain text and comments: what was left undone or waved through, foreign paths, and where links lead."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import PurePosixPath
from posixpath import normpath

from support.tidy.source import ROOT, Finding, Source

# Written so that the pattern does not find itself.
REMINDER = re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X)\b")
HOME = re.compile(r"(?<![\w.$}])/(?:home|root|Users|work)/[\w.]")
WAIVER = re.compile(r"#\s*(?:noqa(?::\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?|type:\s*ignore(?:\[[\w, -]+\])?)(.*)")
LINK = re.compile(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s*(\S+)")
FENCE = re.compile(r"^\s*(```|~~~)")
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:")


def reminders(source: Source) -> Iterator[Finding]:
    """Nothing is left undone with a note in the code."""
    for number, line in enumerate(source.text.splitlines(), 1):
        mark = REMINDER.search(line)
        if mark:
            yield source.at(number, f"{mark[0]} is left: do it now, or open an issue and say here what holds today")


def waivers(source: Source) -> Iterator[Finding]:
    """Who silences the linter or the type checker says why on the same line."""
    if not source.is_python:
        return
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        waiver = WAIVER.search(token.string) if token.type == tokenize.COMMENT else None
        if waiver and not re.search(r"\w\W+\w", waiver[1]):
            yield source.at(token.start[0], "a waiver without reason: write why behind it, or mend what it hides")


def home_paths(source: Source) -> Iterator[Finding]:
    """No path of one person's machine is written down."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if HOME.search(line):
            yield source.at(number, "an absolute path of one machine: make it relative to the repository or a setting")


def links(source: Source) -> Iterator[Finding]:
    """Every link of a Markdown page into the repository leads to a file, and to a heading where it names one."""
    if not source.path.endswith(".md"):
        return
    for number, line in prose(source.text):
        for match in LINK.finditer(line):
            target = match[1] or match[2]
            if not SCHEME.match(target):
                says = _broken(source, target)
                if says:
                    yield source.at(number, says)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a Markdown text outside code, inline code blanked."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", "", line)


def _broken(source: Source, target: str) -> str | None:
    """Say why a link target of a page does not resolve, or None."""
    path, _, anchor = target.partition("#")
    place = normpath(PurePosixPath(source.path).parent / path) if path else source.path
    if place.startswith(("../", "/")):
        return f"the link {target} leads out of the repository: use a full URL"
    file = ROOT / place
    if path and not file.exists():
        return f"the link {target} leads nowhere: {place} does not exist"
    if anchor and place.endswith(".md"):
        text = file.read_text(encoding="utf-8") if path else source.text
        if anchor not in anchors(text):
            return f"the link {target} names no heading: use one of {', '.join(sorted(anchors(text)))}"
    return None


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes from the headings of a Markdown text."""
    found: set[str] = set()
    fenced = False
    for line in text.splitlines():
        if FENCE.match(line):
            fenced = not fenced
        heading = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if heading and not fenced:
            plain = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            copies = sum(1 for known in found if re.fullmatch(rf"{re.escape(plain)}(-\d+)?", known))
            found.add(f"{plain}-{copies}" if copies else plain)
    return found
