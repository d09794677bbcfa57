"""From file, environment and command line to one checked `Config`; what comes later in this list wins.

A key that nobody knows is an error and not a warning: a limit that was misspelled is a limit that does not hold.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kvledger.errors import CallerError
from kvledgerd.settings import SETTINGS, Config, Setting

__all__ = ["ConfigError", "load", "parse_bytes", "render"]

_PREFIX: Final = "KVLEDGER_"
_UNITS: Final = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_WORDS: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


class ConfigError(CallerError):
    """A setting is unknown, of the wrong type or out of bounds, or two of them contradict each other."""

    code = "config"


def load(
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    overrides: Mapping[str, object] | None = None,
) -> Config:
    """Return the configuration.

    Args:
        file: TOML file, if there is one; all its keys are settings.
        environment: `KVLEDGER_MEMORY_BYTES` and so on. Names with that prefix that are no settings are left alone,
            unless they look like one that was misspelled.
        overrides: What the command line said, by the names of settings.

    Raises:
        ConfigError: Names the setting, where it was set, and what is right.
    """
    values: dict[str, Any] = {}
    for key, value in (_read(file) if file else {}).items():
        values[key] = _checked(_row(key, f"in {file}"), value, f"in {file}")
    for key, text in _from_environment(environment).items():
        values[key] = _checked(SETTINGS[key], text, f"in {_PREFIX}{key.upper()}")
    for key, value in (overrides or {}).items():
        values[key] = _checked(_row(key, "on the command line"), value, "on the command line")
    return Config(**values)


def parse_bytes(text: str) -> int:
    """Return a number of bytes that may be written with a unit: 4096, 64MiB, 1.5GiB.

    Raises:
        ValueError: It is no such number.
    """
    number = text.strip().rstrip("BKMGTibkmgt")
    unit = text.strip()[len(number) :].strip().upper()
    if unit not in _UNITS:
        raise ValueError(f"{unit} is no unit; use KiB, MiB, GiB or TiB")
    return int(float(number) * _UNITS[unit]) if "." in number else int(number) * _UNITS[unit]


def render(config: Config) -> str:
    """Return a configuration as a commented TOML file."""
    lines: list[str] = []
    for row in SETTINGS.values():
        value = getattr(config, row.name)
        shown = f'"{value}"' if row.kind is Path else str(value).lower()
        lines += [f"# {row.does} {row.advice}", f"{row.name} = {shown}", ""]
    return "\n".join(lines)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{file} can not be read: {error.strerror}", field="config", remedy="name a file that exists"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{file} is no TOML: {error}", field="config", remedy="mend that line") from error


def _row(key: str, where: str) -> Setting:
    if key in SETTINGS:
        return SETTINGS[key]
    near = difflib.get_close_matches(key, SETTINGS, 1)
    remedy = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(SETTINGS)}"
    raise ConfigError(f"there is no such setting ({where})", field=key, remedy=remedy)


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, text in environment.items():
        key = name.removeprefix(_PREFIX).lower()
        if name == key or not name.startswith(_PREFIX):
            continue
        if key in SETTINGS:
            found[key] = text
        elif difflib.get_close_matches(key, SETTINGS, 1, cutoff=0.85):
            _row(key, "in the environment")
    return found


def _checked(row: Setting, value: object, where: str) -> object:
    try:
        right = _converted(row, value)
    except ValueError as error:
        what = "a number of bytes such as 64MiB" if row.unit == "bytes" else f"a value of type {row.kind.__name__}"
        raise ConfigError(f"{value!r} ({where}) is not {what}", field=row.name, remedy=row.advice) from error
    if isinstance(right, int) and not (row.low is None or row.high is None) and not row.low <= right <= row.high:
        raise ConfigError(
            f"{right} ({where}) is not within {row.low} and {row.high}", field=row.name, remedy=row.advice
        )
    return right


def _converted(row: Setting, value: object) -> object:
    if row.kind is Path and isinstance(value, str | Path) and str(value):
        return Path(value)
    if row.kind is bool:
        if isinstance(value, str) and value.lower() in _WORDS:
            return _WORDS[value.lower()]
        if isinstance(value, bool):
            return value
    if row.kind is int and not isinstance(value, bool):
        if isinstance(value, str):
            return parse_bytes(value) if row.unit == "bytes" else int(value)
        if isinstance(value, int):
            return value
    raise ValueError(value)
