"""Values of settings as a configuration file has them: whoever reads a message finds them there letter by letter."""

import json

__all__ = ["toml_text"]


def toml_text(value: object) -> str:
    """Return a value on one line, in TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml_text(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_text, value)) + "]"
    # A text, number or truth is written in TOML as it is in JSON, which knows no dates.
    return json.dumps(value, ensure_ascii=False, default=str)
