"""Settings: where they come from, what is refused, and that one table is behind all of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kvledger.kinds import Kind
from kvledgerd.core.copies.precisions import Precision
from kvledgerd.core.placement.caps import NO_CAP
from kvledgerd.settings.loading import ConfigError, core_config, load, render
from kvledgerd.settings.table import SETTINGS, Config
from kvledgerd.sizes import parse_bytes


def written(folder: Path, text: str) -> Path:
    """Return a configuration file with this text."""
    path = folder / "kvledger.toml"
    path.write_text(text)
    return path


def test_later_sources_win(tmp_path):
    """The command line wins over the environment, the environment over the file, the file over the defaults."""
    file = written(tmp_path, 'memory_bytes = "2GiB"\ncopy_workers = 3\nread_workers = 3\n')
    config = load(file, {"KVLEDGER_COPY_WORKERS": "4", "KVLEDGER_READ_WORKERS": "4"}, {"read_workers": 5})

    assert (config.memory_bytes, config.copy_workers, config.read_workers) == (2 << 30, 4, 5)
    assert config.arena_bytes == SETTINGS["arena_bytes"].default


def test_printed_settings_read_back_the_same(tmp_path):
    """What `render` writes is a file that `load` turns into the same settings."""
    settings = {"memory_bytes": "3GiB", "json_log": True, "data_dir": Path("/srv/kv"), "kind_entries": "SWA_WINDOW=7"}
    config = load(None, {}, settings)

    assert load(written(tmp_path, render(config)), {}) == config


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ("memry_bytes = 1", "memry_bytes", "did you mean memory_bytes?"),
        ("zzz = 1", "zzz", "the settings are data_dir"),
        ("memory_bytes = 1", "memory_bytes", "not within 8388608"),
        ("memory_bytes = true", "memory_bytes", "a number of bytes such as 64MiB"),
        ('memory_bytes = "1XB"', "memory_bytes", "a number of bytes such as 64MiB"),
        ("copy_workers = 1.5", "copy_workers", "a value of type int"),
        ('json_log = "perhaps"', "json_log", "a value of type bool"),
        ('data_dir = ""', "data_dir", "a value of type Path"),
        ("memory_bytes = ", "config", "is no TOML"),
        (f"memory_bytes = {'[' * 5000}", "config", "is no TOML"),
        ('kind_bytes = "ROWS=1GiB"', "kind_bytes", 'a text such as "SWA_WINDOW=1GiB'),
        ('kind_bytes = "SWA_WINDOW"', "kind_bytes", 'a text such as "SWA_WINDOW=1GiB'),
        ('kind_entries = "SWA_WINDOW=1, swa_window=2"', "kind_entries", 'a text such as "SWA_WINDOW=1GiB'),
        ('disk_precision = "DISK_PREFIX=e4m3"', "disk_precision", 'a text such as "COMPRESSED_KV=e4m3'),
        ('disk_precision = {COMPRESSED_KV = "e4m3"}', "disk_precision", 'a text such as "COMPRESSED_KV=e4m3'),
        ('disk_precision = "SWA_WINDOW=fp4"', "disk_precision", 'a text such as "COMPRESSED_KV=e4m3'),
        ("tenants = 17", "memory_bytes", "set memory_bytes to 4563402752 or more, arena_bytes to 15790320 or less"),
        ('tenants = 8\nmemory_bytes = "1GiB"', "memory_bytes", "or tenants to 4 or less"),
        ('tenant_bytes = "100MiB"', "tenant_bytes", "arenas of 26214400 bytes or less"),
    ],
)
def test_wrong_settings_are_named_with_a_remedy(tmp_path, text, field, says):
    """A wrong setting is an error that names it, says where it was set and what is right."""
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, text), {})

    assert caught.value.field == field
    assert says in str(caught.value)
    assert caught.value.remedy


def test_caps_of_kinds_are_one_text(tmp_path):
    """Caps of kinds are read in any spelling, come back in the usual one, and reach the core; 0 caps nothing."""
    config = load(written(tmp_path, 'kind_bytes = "swa_window = 1GiB,INDEXER_STATE=4096"\ntenant_entries = 5'), {})

    assert config.kind_bytes == "SWA_WINDOW=1GiB, INDEXER_STATE=4096"
    core = core_config(config)
    assert core.kind_bytes == {Kind.SWA_WINDOW: 1 << 30, Kind.INDEXER_STATE: 4096}
    assert (core.tenant_entries, core.disk_entries, core.kind_entries) == (5, NO_CAP, {})


def test_forms_on_disk_are_one_text(tmp_path):
    """Forms of kinds are read in any spelling, come back in the usual one, and reach the core; none is exact."""
    config = load(written(tmp_path, 'disk_precision = "compressed_kv = E4M3,SWA_WINDOW=exact"'), {})

    assert config.disk_precision == "COMPRESSED_KV=e4m3, SWA_WINDOW=exact"
    assert core_config(config).disk_precision == {Kind.COMPRESSED_KV: Precision.E4M3, Kind.SWA_WINDOW: Precision.EXACT}
    assert core_config(Config()).disk_precision == {}


def test_misspelled_environment_is_refused_and_foreign_left_alone():
    """A name in the environment that looks like a misspelled setting is refused; other names are somebody else's."""
    assert load(None, {"KVLEDGER_CLIENT_OPTION": "1", "HOME": "/"}) == Config()
    with pytest.raises(ConfigError, match="did you mean uid_requests"):
        load(None, {"KVLEDGER_UID_REQUEST": "1"})


@pytest.mark.parametrize(
    ("text", "value"),
    [("4096", 4096), ("64KiB", 65536), (" 2 MiB ", 2 << 20), ("1.5GiB", 3 << 29), ("1tib", 1 << 40), ("7B", 7)],
)
def test_bytes_may_have_units(text, value):
    """Numbers of bytes are read with the units that people write."""
    assert parse_bytes(text) == value


def test_the_table_is_complete():
    """Every setting has bounds where it is a number, a default within them, one sentence and an advice."""
    assert list(SETTINGS) == [field.name for field in dataclasses.fields(Config)]
    for row in SETTINGS.values():
        if row.kind is int:
            assert row.low <= row.default <= row.high
        assert row.does[0].isupper()
        assert row.advice
