"""Events as plain values, for JSON: bytes become hexadecimal digits."""

from typing import Any

import msgspec

__all__ = ["plain_fields"]


def plain_fields(event: Any) -> dict[str, object]:
    """Return the fields of an event by name, in values that JSON has."""
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    plain: dict[str, object] = msgspec.to_builtins(fields, builtin_types=(bytes,), enc_hook=str)
    return {name: _hexed(value) for name, value in plain.items()}


def _hexed(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return [_hexed(item) for item in value]
    if isinstance(value, dict):
        return {key: _hexed(item) for key, item in value.items()}
    return value
