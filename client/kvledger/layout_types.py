"""A layout whose fields have the types that they are declared with.

Structs check types when they are decoded, not when they are made, so a layout that an engine declares may hold a string
where a number belongs. It goes once through builtin types here, since the codec knows every rule that stands in the
annotations, and whoever wrote the layout is told which field is wrong instead of meeting a TypeError somewhere else.
"""

import re
from typing import Any

import msgspec

from kvledger.errors import LayoutError
from kvledger.layout import Layout

__all__ = ["typed"]

_PLACE = re.compile(r"(.*) - at (?:`key` in )?`\$\.?(.*)`$")
_REMEDY = "declare the field as kvledger.Layout, GroupSpec and KernelABI describe it"
_REMEDY_KIND = "use a member of kvledger.Kind"
# The codec speaks of JSON
_PYTHON = {"`array`": "`tuple`", "`object`": "a struct or `dict`", "`null`": "`None`"}


def typed(layout: Layout) -> Layout:
    """Return a layout with the types that its fields declare; lists become tuples.

    Raises:
        LayoutError: It is no layout, or a field has another type or range; the error names its path.
    """
    if not isinstance(layout, Layout):
        wrong = f"a {type(layout).__name__} is no layout"
        raise LayoutError(wrong, field="layout", remedy="pass a kvledger.Layout")
    foreign: list[str] = []

    def as_nothing(value: Any) -> None:
        foreign.append(type(value).__name__)

    try:
        plain = msgspec.to_builtins(layout, builtin_types=(bytes, bytearray), enc_hook=as_nothing)
        found = msgspec.convert(plain, Layout)
    except (msgspec.ValidationError, TypeError) as error:
        raise _refusal(str(error), foreign) from error
    _require_whole_text(plain, "")
    return found


def _require_whole_text(value: Any, at: str) -> None:
    """Refuse text with half a character in it: it has no bytes, so it can neither be sent nor be part of a digest."""
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise LayoutError(f"{value!r} is no whole text: {error}", field=at, remedy=_REMEDY) from error
    elif isinstance(value, dict):
        for name, part in value.items():
            _require_whole_text(part, f"{at}.{name}" if at else str(name))
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            _require_whole_text(part, f"{at}[{number}]")


def _refusal(text: str, foreign: list[str]) -> LayoutError:
    # The codec has read a value of a foreign type as nothing; the first of them is where it stopped
    if foreign:
        text = text.replace("got `null`", f"got `{foreign[0]}`")
    found = _PLACE.match(text)
    message, field = found.groups() if found else (text, "layout")
    for codec, python in _PYTHON.items():
        message = message.replace(codec, python)
    remedy = _REMEDY_KIND if field.endswith(".kind") else _REMEDY
    return LayoutError(message[:1].lower() + message[1:], field=field, remedy=remedy)
