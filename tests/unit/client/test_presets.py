"""Presets: what they hold, and that a layout of a known model can not forget a group."""

import pytest

from kvledger import presets
from kvledger.errors import CallerError, LayoutError
from kvledger.kinds import Form, Kind
from kvledger.layout import GroupSpec, KernelABI
from unit.client.fake import layout


def flash(*left_out, **changes):
    """Return a layout with the groups of V4 Flash except those left out, `changes` applied to the group named."""
    common = {"form": Form.ROWS, "layers": (0,), "row_bytes": 64, "page_bytes": 4096}
    state = {"form": Form.SNAPSHOT, "layers": (0,), "page_bytes": 4096}
    groups = {
        "csa": {"kind": Kind.COMPRESSED_KV, "tokens_per_row": 4, **common},
        "hca": {"kind": Kind.COMPRESSED_KV, "tokens_per_row": 128, **common},
        "idx": {"kind": Kind.INDEXER_STATE, "tokens_per_row": 4, "coupled_to": "csa", **common},
        "swa": {"kind": Kind.SWA_WINDOW, "window": 128, **state},
        "tail4": {"kind": Kind.UNCOMPRESSED_TAIL, "halo_rows": 4, "coupled_to": "csa", **state},
        "tail128": {"kind": Kind.UNCOMPRESSED_TAIL, "coupled_to": "hca", **state},
    }
    specs = tuple(
        GroupSpec(name=name, **(fields | changes.get(name, {})))
        for name, fields in groups.items()
        if name not in left_out
    )
    abi = {spec.name: KernelABI(name="test") for spec in specs}
    return layout(preset="deepseek-v4-flash", groups=specs, abi=abi, block_tokens=128)


def test_known_architectures():
    """There is a preset for each architecture that the documentation names, and each says where it comes from."""
    deepseek = ["deepseek-v3.2", "deepseek-v4-flash", "deepseek-v4-pro"]
    assert presets.names() == [*deepseek, "gemma-3", "gpt-oss", "plain", "qwen3-next"]
    for name in presets.names():
        preset = presets.load(name)
        assert len(preset.source) > 40
        assert all(Kind[group.kind] is not Kind.DISK_PREFIX for group in preset.groups)


def test_size_of_v4_flash():
    """The rows of V4 Flash come to 3,850 bytes a token, the number that capacity is planned with."""
    rows = [group for group in presets.load("deepseek-v4-flash").groups if group.tokens_per_row]
    assert int(sum(group.layers * group.row_bytes / group.tokens_per_row for group in rows)) == 3850


@pytest.mark.parametrize(("name", "layers", "csa", "hca"), [("flash", 43, 21, 20), ("pro", 61, 30, 31)])
def test_layers_of_v4(name, layers, csa, hca):
    """Every layer keeps a window; each compressed one a tail as well, and CSA an indexer."""
    found = {group.name: group.layers for group in presets.load(f"deepseek-v4-{name}").groups}
    of_csa = {"csa": csa, "indexer": csa, "csa_tail": csa}
    assert found == {**of_csa, "hca": hca, "hca_tail": hca, "window": layers}


def test_complete_layout_passes():
    """A layout with all groups of its preset passes, whatever it calls them."""
    presets.check_complete(flash())


@pytest.mark.parametrize(
    ("group", "named"),
    [
        ("csa", r"csa \(COMPRESSED_KV, 4 tokens a row\)"),
        ("hca", r"hca \(COMPRESSED_KV, 128 tokens a row\)"),
        ("idx", "indexer"),
        ("swa", "a window of 128"),
        ("tail4", "csa_tail .*a halo"),
        ("tail128", "hca_tail"),
    ],
)
def test_forgotten_group_is_named(group, named):
    """Each group that a layout of V4 Flash forgets is named with what it is."""
    whole = flash()
    rest = tuple(spec for spec in whole.groups if spec.name != group)
    if group in {"csa", "hca"}:  # what hangs on it can not be declared without it
        rest = tuple(spec for spec in rest if spec.coupled_to != group)
    with pytest.raises(LayoutError, match=named):
        presets.check_complete(layout(preset="deepseek-v4-flash", groups=rest, block_tokens=128))


@pytest.mark.parametrize(
    "changes",
    [
        {"tail4": {"halo_rows": 0}},
        {"swa": {"window": 64}},
        {"idx": {"coupled_to": "hca"}},
        {"idx": {"coupled_to": ""}},
        {"csa": {"tokens_per_row": 8}},
    ],
)
def test_wrong_group_is_a_forgotten_one(changes):
    """A group without its halo, with another window, rate or partner is not the one that the preset means."""
    with pytest.raises(LayoutError, match="also keeps"):
        presets.check_complete(flash(**changes))


def test_model_name_finds_the_preset():
    """A layout of a listed model is checked even if it names no preset."""
    with pytest.raises(LayoutError, match=r"gpt-oss also keeps window"):
        presets.check_complete(layout(model="openai/gpt-oss-20b"))


def test_unknown_model_answers_for_itself():
    """A layout of an unknown model that names no preset passes on its own word."""
    presets.check_complete(layout(model="somebody/else"))


def test_unknown_preset_is_refused():
    """A preset that does not exist is refused with the names of those that do."""
    with pytest.raises(CallerError, match=r"preset: no preset 'gpt-osss' \(use one of deepseek"):
        presets.check_complete(layout(preset="gpt-osss"))
