"""Everything that is decoded has a declared type: nothing on the wire or in a file can be anything."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import inspect

from kvledger import passing
from kvledger.layout import Layout
from kvledger.wire import replies, requests
from kvledger_storage import events

READ = {
    "requests": requests.Request,
    "replies": replies.Reply,
    "layouts": Layout,
    "hits that are passed on": passing.PassedHit,
    "tickets that are passed on": passing.PassedTicket,
    "events": events.Event,
}
UNTYPED = (inspect.AnyType, inspect.CustomType, inspect.ExtType, inspect.RawType)


def parts(found, seen):
    """Yield a type and all types inside it, each once."""
    if id(found) in seen:
        return
    seen[id(found)] = found
    yield found
    for name in found.__struct_fields__:
        value = getattr(found, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, inspect.Type):
                yield from parts(part, seen)
            elif isinstance(part, inspect.Field):
                yield from parts(part.type, seen)


def untyped(kind):
    """Return the types inside a type that say nothing about what they hold."""
    return [found for found in parts(inspect.type_info(kind), {}) if isinstance(found, UNTYPED)]


@pytest.mark.hostile("SC01")
@pytest.mark.parametrize("name", READ)
def test_whatever_is_decoded_has_a_declared_type(name):
    """No field of any message, layout or event is of any type, of one that needs a hook, or an extension."""
    assert untyped(READ[name]) == []


class Loose(msgspec.Struct):
    """A message as none may be."""

    name: str
    rest: dict[str, list[object]]


@pytest.mark.hostile("SC01")
def test_a_field_of_any_type_would_be_found():
    """The search sees what hides inside lists and maps, so it can fail."""
    (found,) = untyped(Loose)
    assert isinstance(found, inspect.AnyType | inspect.CustomType)
