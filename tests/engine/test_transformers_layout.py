"""Layouts read off live models: what they declare, what makes them differ, and what is refused."""

import pytest
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from engine.models import BUILDERS, gpt_oss, model
from kvledger.adapters._layers import KNOWN_CLASSES
from kvledger.adapters.transformers import layout_for
from kvledger.errors import LayoutError
from kvledger.geometry import Geometry
from kvledger.kinds import Form, Kind

ROWS, SNAPSHOT = Form.ROWS, Form.SNAPSHOT
KV, TAIL, SWA, INDEXER = Kind.COMPRESSED_KV, Kind.UNCOMPRESSED_TAIL, Kind.SWA_WINDOW, Kind.INDEXER_STATE
# name: kind, form, layers, owners, tokens per row, partner
EXPECTED = {
    "deepseek-v4": {
        "hca": (KV, ROWS, (1, 3), 2, 128, ""),
        "csa": (KV, ROWS, (2, 4), 2, 4, ""),
        "swa": (SWA, SNAPSHOT, (0,), 1, 1, ""),
        "swa_shared": (SWA, SNAPSHOT, (1, 2, 3, 4), 4, 1, ""),
        "hca_tail": (TAIL, SNAPSHOT, (1, 3), 2, 1, "hca"),
        "csa_tail": (TAIL, SNAPSHOT, (2, 4), 2, 1, "csa"),
        "csa_halo": (TAIL, SNAPSHOT, (2, 4), 2, 1, "csa"),
        "csa_indexer": (INDEXER, ROWS, (2, 4), 2, 4, "csa"),
    },
    "gpt-oss": {"full": (KV, ROWS, (1, 3), 2, 1, ""), "swa": (SWA, SNAPSHOT, (0, 2), 2, 1, "")},
    "gemma3": {"full": (KV, ROWS, (2,), 1, 1, ""), "swa": (SWA, SNAPSHOT, (0, 1, 3, 4), 4, 1, "")},
    "gemma3n": {"full": (KV, ROWS, (1, 3, 5), 2, 1, ""), "swa": (SWA, SNAPSHOT, (0, 2, 4), 2, 1, "")},
    "qwen3-next": {"full": (KV, ROWS, (3,), 1, 1, ""), "recurrent": (TAIL, SNAPSHOT, (0, 1, 2), 3, 1, "")},
    "deepseek-v3.2": {"full": (KV, ROWS, (0, 1, 2), 3, 1, ""), "indexer": (INDEXER, ROWS, (0, 1, 2), 3, 1, "full")},
}


def layout_of(subject, **options):
    """Read the layout of a model, with a tokenizer of bytes."""
    return layout_for(subject, tokenizer_digest="bytes", **options)


@pytest.mark.parametrize("name", EXPECTED)
def test_groups_are_what_the_layers_keep(name):
    """Each kind of state of each shape is one group, coupled where it continues or indexes rows."""
    found = {
        g.name: (g.kind, g.form, g.layers, g.owners, g.tokens_per_row, g.coupled_to)
        for g in layout_of(model(name)).groups
    }
    assert found == EXPECTED[name]


def test_layers_that_read_another_layers_state_are_named_with_its_owner():
    """Of shared keys and values the owner is stored once, and all its readers are named."""
    shared = layout_of(model("gemma3n")).group("full")
    assert (shared.layers, shared.owner_layers) == ((1, 3, 5), (1, 3))


def test_halo_and_tail_are_objects_of_their_own():
    """At a multiple of the rows the tail is not needed and the halo is."""
    layout = layout_of(model("deepseek-v4"))
    need = {layout.groups[item.group].name for item in Geometry(layout).unit_objects(0, 256, boundary=True)}
    assert layout.group("csa_halo").halo_rows == 4
    assert need == {"csa", "hca", "csa_indexer", "swa", "swa_shared", "csa_halo"}


@pytest.mark.parametrize("name", BUILDERS)
def test_equal_models_have_one_digest(name):
    """Two processes that load the same model come to the same layout."""
    assert layout_of(model(name)).digest == layout_of(BUILDERS[name]()).digest


def test_one_changed_weight_is_another_layout():
    """Changing a weight in place changes the weights digest and nothing else."""
    subject = gpt_oss()
    before = layout_of(subject)
    with torch.no_grad():
        subject.model.layers[2].self_attn.k_proj.weight[3, 5] += 1e-3
    after = layout_of(subject)
    assert before.weights_digest != after.weights_digest
    assert before.abi == after.abi
    assert before.config_digest == after.config_digest


def test_changed_frequencies_are_another_layout():
    """Buffers that are saved with no model decide about the bytes and so about the digest."""
    subject = gpt_oss()
    before = layout_of(subject).weights_digest
    subject.model.rotary_emb.inv_freq *= 1.5
    assert layout_of(subject).weights_digest != before


@pytest.mark.parametrize("field", ["sliding_window", "rope_theta", "_attn_implementation"])
def test_configuration_that_matters_is_another_layout(field):
    """Window, position encoding and attention implementation are part of the identity, names are not."""
    subject = gpt_oss()
    before = layout_of(subject)
    subject.config.name_or_path = "elsewhere"
    assert layout_of(subject).digest == before.digest
    changed = {
        "sliding_window": lambda c: setattr(c, "sliding_window", 16),
        "rope_theta": lambda c: c.rope_parameters.update(rope_theta=5e4),
        "_attn_implementation": lambda c: setattr(c, "_attn_implementation_internal", "sdpa"),
    }
    changed[field](subject.config)
    assert layout_of(subject).config_digest != before.config_digest


def test_half_precision_is_declared():
    """Element types are those of the cache, and float32 states among bfloat16 rows are told apart."""
    layout = layout_of(BUILDERS["qwen3-next"]().to(torch.bfloat16))
    assert layout.dtype == "bfloat16"
    assert layout.group("full").dtype == "bfloat16"
    assert layout.group("full").row_bytes * 2 == layout_of(model("qwen3-next")).group("full").row_bytes
    assert "float32" in layout.group("recurrent").dtype


@pytest.mark.parametrize(("asked", "given"), [(None, 128), (256, 256)])
def test_block_is_a_multiple_of_all_rows(asked, given):
    """The default block is the smallest multiple of the rows from 128 tokens on; a larger one may be asked for."""
    assert layout_of(model("deepseek-v4"), block_tokens=asked).block_tokens == given


def test_block_that_cuts_rows_is_refused():
    """A block that is no multiple of a row is refused, with a size that would do."""
    with pytest.raises(LayoutError, match="use a multiple of 128"):
        layout_of(model("deepseek-v4"), block_tokens=64)


def test_unknown_layer_class_is_refused_by_name(monkeypatch):
    """A subclass of a known layer may keep more state, so it is refused, and the error names it."""

    class SecretLayer(DynamicLayer):
        pass

    def replaced(cache, *args, **kwargs):
        original(cache, *args, **kwargs)
        cache.layers[1] = SecretLayer()

    original = DynamicCache.__init__
    monkeypatch.setattr(DynamicCache, "__init__", replaced)
    with pytest.raises(LayoutError, match="SecretLayer is not known"):
        layout_of(model("gpt-oss"))


def test_unknown_way_of_sharing_is_refused(monkeypatch):
    """Layers that share only a part of their state are refused, since nobody knows which part."""
    config = model("gpt-oss").config
    monkeypatch.setattr(type(config), "kv_sharing_modes", ["reuse_but_indexer"] * 4, raising=False)
    monkeypatch.setattr(
        "transformers.cache_utils.get_layer_types_and_kwargs", lambda _: (["full_attention"] * 4, [{}] * 4)
    )
    with pytest.raises(LayoutError, match="reuse_but_indexer"):
        layout_of(model("gpt-oss"))


def test_abi_tells_order_shape_and_type():
    """The ABI of a group spells out the order of dimensions, so that equal sizes of other meaning differ."""
    abi = layout_of(model("deepseek-v4")).abi["csa"]
    assert abi.layout == "owner,part,row: compressed_kv.compressor[1,*,16]float32"


def test_known_classes_are_all_tried():
    """Each layer class that the adapter knows is part of a model that the other tests save and restore."""
    tried = {type(layer).__qualname__ for name in BUILDERS for layer in DynamicCache(config=model(name).config).layers}
    assert tried == {name.rpartition(".")[2] for name in KNOWN_CLASSES}
