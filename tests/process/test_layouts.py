"""``kvledger layout`` beside a running daemon: what is known, what a group costs, in what two layouts differ."""

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from kvledger import Cache
from kvledger.testing import Daemon
from kvledgerd.commands.table import run
from support.tiny import store, tiny_layout


@dataclass
class Asker:
    """Asks one data directory."""

    data: Path
    out: pytest.CaptureFixture

    def __call__(self, *arguments, code=0):
        """Return what a command prints."""
        self.out.readouterr()
        assert run(["layout", *arguments, "--data", str(self.data)]) == code
        return self.out.readouterr()


@pytest.fixture(scope="module")
def data():
    """A directory with two layouts that differ in dtype; something is stored under the first."""
    with Daemon(memory="64MiB") as daemon, Cache.open(daemon.socket) as cache:
        store(cache, cache.register(tiny_layout()), 1)
        cache.register(msgspec.structs.replace(tiny_layout(), dtype="float16"))
        yield daemon.data_dir


@pytest.fixture
def ask(data, capsys):
    """Ask `kvledger layout`."""
    return Asker(data, capsys)


def test_the_list_tells_what_is_stored_under_each(ask):
    """Objects and bytes stand beside the layout under which they are stored, and 0 beside the other."""
    one, other = json.loads(ask("list", "--json").out)["layouts"]
    assert one["digest"] == tiny_layout().digest.hex()
    assert one["objects"] > 0 < one["memory_bytes"]
    assert (other["objects"], other["memory_bytes"], other["disk_objects"]) == (0, 0, 0)
    assert one["digest"][:12] in ask("list").out


def test_a_layout_is_shown_by_number_or_by_digest(ask):
    """Both names lead to the same groups, with the bytes of an object and the kernel that reads it."""
    shown = json.loads(ask("show", "1", "--json").out)
    assert shown == json.loads(ask("show", tiny_layout().digest.hex()[:8], "--json").out)
    sizes = {spec.name: spec.page_bytes for spec in tiny_layout().groups}
    assert all(cost["object_bytes"] >= size for cost, size in zip(shown["costs"], sizes.values(), strict=True))
    page = ask("show", "1").out
    assert all(name in page for name in sizes)
    assert "the rows of a block take" in page


def test_the_field_that_keeps_two_layouts_apart_is_named(ask):
    """Comparing names the field with both values, and says so if there is nothing to name."""
    assert "dtype: stored " in ask("compare", "1", "2").out
    assert ask("compare", "1", "1").out == "they are one layout\n"


@pytest.mark.parametrize("name", ["9", "", "zz"])
def test_an_unknown_name_is_refused_with_a_remedy(ask, name):
    """A layout that is not there, or no name at all, ends the command and leads to the list."""
    assert "kvledger layout list" in ask("show", name, code=78).err
