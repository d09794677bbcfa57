"""The colours of the page can be read: text by everybody, marks of kinds and layers, in the light and in the dark."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

CSS = files("kvledgerd.page").joinpath("static", "page.css").read_text(encoding="utf-8")
SCHEMES = dict(zip(("light", "dark"), re.findall(r":root \{(.*?)\}", CSS, re.DOTALL), strict=True))
TEXT = 4.5
"""What WCAG 2.2 asks of text, level AA."""


def colours(scheme: str) -> dict[str, str]:
    """Return the colours of a scheme by name."""
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", SCHEMES[scheme]))


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_can_be_read(scheme):
    """Ink, quiet text, links and the word for a miss stand out from page and tables, and warnings can be read."""
    found = colours(scheme)
    pairs = [(name, ground) for name in ("ink", "quiet", "link", "l3") for ground in ("ground", "card")]
    pairs += [("ink", "warn")]
    assert [pair for pair in pairs if contrast(*(found[name] for name in pair)) < TEXT] == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_marks_can_be_read(scheme):
    """The letters on the mark of each kind and the number on that of each layer stand out from it."""
    found = colours(scheme)
    kinds = ("kv", "tail", "swa", "idx", "disk", "l1", "l2", "l3")
    assert [name for name in kinds if contrast(found["on-mark"], found[name]) < TEXT] == []
    assert contrast(found["ground"], found["l4"]) >= TEXT


@pytest.mark.parametrize("scheme", SCHEMES)
def test_usable_and_refused_are_told_apart_without_colour(scheme):
    """What is usable of a prompt and what was refused differ in brightness, too."""
    found = colours(scheme)
    assert contrast(found["usable"], found["claimed"]) >= 1.8
