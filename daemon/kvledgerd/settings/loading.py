"""From file, environment and command line to one checked `Config`; what comes later in this list wins.

A key that nobody knows is an error and not a warning: a limit that was misspelled is a limit that does not hold.
"""

import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

from kvledger.wire.commands import Right
from kvledgerd.access import AccessRules, Sockets
from kvledgerd.core.config import CoreConfig, DiskWritePolicy
from kvledgerd.core.placement.caps import NO_CAP
from kvledgerd.settings.checks import ConfigError, check_access, check_capacity
from kvledgerd.settings.disk_sizes import records_cap
from kvledgerd.settings.kind_values import KindCaps, KindPrecisions
from kvledgerd.settings.table import SETTINGS, Config, Setting
from kvledgerd.sizes import parse_bytes
from kvledgerd.tensor_device import TensorDevice
from kvledgerd.toml_text import toml_text
from kvledgerd.web.address import HttpAddress

__all__ = ["ConfigError", "core_config", "load", "render"]

_PREFIX: Final = "KVLEDGER_"
# Part of the memory that may be on its way to disk, and so can not make room, at the same time.
_WRITING: Final = 16
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


_FROM_TEXT: Final[dict[type, Callable[[Any], object]]] = {
    DiskWritePolicy: DiskWritePolicy,
    HttpAddress: HttpAddress.parse,
    KindCaps: KindCaps.parse,
    TensorDevice: TensorDevice.parse,
    KindPrecisions: KindPrecisions.parse,
}
_SHAPES: Final[dict[type, str]] = {
    DiskWritePolicy: f"one of {', '.join(DiskWritePolicy)}",
    HttpAddress: "an address of this machine alone",
    KindCaps: 'a text such as "SWA_WINDOW=1GiB, INDEXER_STATE=512MiB"',
    TensorDevice: "cpu, or a GPU such as cuda:0",
    KindPrecisions: 'a text such as "COMPRESSED_KV=e4m3, SWA_WINDOW=int8"',
}
"""Types to what a text of theirs looks like, for people."""
_TABLES: Final[dict[type, Callable[[Any], object]]] = {AccessRules: AccessRules.parse, Sockets: Sockets.parse}


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
    config = Config(**values)
    check_access(config)
    check_capacity(config, core_config(config))
    return config


def core_config(config: Config) -> CoreConfig:
    """Return the caps of the core that follow from the settings; 0 stands for none, or for a tenant's equal part."""
    tenants = max(config.tenants, len(config.access.tenants))
    part = partial(_part, tenants)
    topology_bytes = config.memory_bytes * config.topology_percent // 100
    return CoreConfig(
        memory_bytes=config.memory_bytes,
        memory_entries=config.memory_entries or NO_CAP,
        arena_bytes=config.arena_bytes,
        tenants=tenants,
        tenant_bytes=config.tenant_bytes or part(config.memory_bytes),
        tenant_entries=config.tenant_entries or part(config.max_objects // 2),
        kind_bytes=config.kind_bytes.amounts(),
        kind_entries=config.kind_entries.amounts(),
        disk_bytes=records_cap(config),
        disk_entries=config.disk_entries or NO_CAP,
        disk_tenant_bytes=config.disk_tenant_bytes or part(records_cap(config)),
        disk_tenant_entries=config.disk_tenant_entries or part(config.max_objects // 2),
        disk_kind_bytes=config.disk_kind_bytes.amounts(),
        disk_kind_entries=config.disk_kind_entries.amounts(),
        device_bytes=config.device_bytes or NO_CAP,
        device_entries=config.device_entries,
        device_tenant_bytes=config.device_tenant_bytes or NO_CAP,
        device_tenant_entries=config.device_tenant_entries or part(config.device_entries),
        device_kind_bytes=config.device_kind_bytes.amounts(),
        device_kind_entries=config.device_kind_entries.amounts(),
        max_objects=config.max_objects,
        uid_leases=config.uid_leases,
        wait_ms=config.wait_seconds * 1000,
        topology_bytes=topology_bytes,
        topology_tenant_bytes=part(topology_bytes),
        compact_percent=config.compact_percent,
        disk_write=config.disk_write,
        disk_precision=config.disk_precision.precisions(),
        write_bytes=min(config.queue_bytes, config.memory_bytes // _WRITING),
        allow_unpinned=config.allow_unpinned,
    )


def _part(tenants: int, whole: int) -> int:
    """Return a tenant's equal part of what all have, so that nobody can leave nothing to the others."""
    return whole // tenants if tenants > 1 else NO_CAP


def render(config: Config) -> str:
    """Return a configuration as a commented TOML file."""
    lines: list[str] = []
    for row in SETTINGS.values():
        value = getattr(config, row.name)
        shown = str(value) if row.kind in _TABLES else str(value).lower()
        shown = f'"{value}"' if row.kind in {Path, *_FROM_TEXT} else shown
        lines += [f"# {row.does} {row.advice}", f"{row.name} = {shown}", ""]
    return "\n".join(lines)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{file} can not be read: {error.strerror}", field="config", remedy="name a file that exists"
        ) from error
    except (ValueError, RecursionError) as error:
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
        what = "a number of bytes such as 64MiB" if row.unit == "bytes" else _what(row.kind)
        why = f": {error}" if row.kind in {*_TABLES, HttpAddress} else ""
        said = repr(value) if isinstance(value, str) else toml_text(value)
        raise ConfigError(f"{said} ({where}) is not {what}{why}", field=row.name, remedy=row.advice) from error
    if isinstance(right, int) and not (row.low is None or row.high is None) and not row.low <= right <= row.high:
        raise ConfigError(
            f"{right} ({where}) is not within {row.low} and {row.high}", field=row.name, remedy=row.advice
        )
    return right


def _what(kind: type) -> str:
    """Return what a value of a setting has to be, for people."""
    if issubclass(kind, AccessRules | Sockets):
        rights = f"; a right is {', '.join(get_args(Right))}"
        whole = ", the path written from the root" if issubclass(kind, Sockets) else rights
        return f"a list of tables with {', '.join(kind.row.__struct_fields__)}{whole}"
    return _SHAPES.get(kind, f"a value of type {kind.__name__}")


def _converted(row: Setting, value: object) -> object:
    if row.kind is Path and isinstance(value, str | Path) and str(value):
        return Path(value)
    if row.kind in _TABLES or (row.kind in _FROM_TEXT and isinstance(value, str)):
        return (_TABLES | _FROM_TEXT)[row.kind](value)
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
