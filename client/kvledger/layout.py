"""What one model, as one engine runs it, keeps: groups, identity and kernel ABI.

A layout is immutable and named by the digest of its canonical encoding. Two engines share objects only if their layouts
are equal in every field that matters to the bytes; equal sizes prove nothing. Checks of a layout stand in
`kvledger.layout_rules`, the positions and sizes that follow from it in `kvledger.geometry`.
"""

from functools import cached_property
from typing import Annotated

import blake3
import msgspec
from msgspec import Meta

from kvledger.kinds import Form, Kind

__all__ = ["GroupSpec", "KernelABI", "Layout"]

Label = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:+-]*$")]
Text = Annotated[str, Meta(max_length=256)]
Digest = Annotated[str, Meta(max_length=128, pattern=r"^[A-Za-z0-9_.:+/-]*$")]
Count = Annotated[int, Meta(ge=0, le=2**31)]
Positive = Annotated[int, Meta(ge=1, le=2**31)]
LayerIds = Annotated[tuple[Annotated[int, Meta(ge=0, le=65535)], ...], Meta(max_length=4096)]


class KernelABI(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a kernel reads the bytes of one group.

    Attributes:
        name: Kernel or format family, for example ``torch.contiguous`` or ``flashmla.fp8_584``.
        number: Hand-versioned; raised whenever the meaning of the bytes changes.
        layout: Order of dimensions, for example ``NHD``.
        strides: Strides of the dimensions named in `layout`, bytes; empty for contiguous.
        page_bytes: Bytes of one page, padding included; 0 if the kernel does not page.
        alignment: Alignment that the kernel needs, bytes.
    """

    name: Label
    number: Count = 1
    layout: Text = ""
    strides: Annotated[tuple[Count, ...], Meta(max_length=8)] = ()
    page_bytes: Count = 0
    alignment: Positive = 1


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Layers that keep the same kind of state in the same shape.

    An object holds, owner layer after owner layer, whole pages of `page_bytes`. A page holds `rows_per_page` rows of
    `row_bytes`; a row stands for `tokens_per_row` tokens. Of a snapshot one page is the whole state of one owner layer.

    Attributes:
        name: Name of the group, unique in the layout.
        kind: The kind of state; never `Kind.DISK_PREFIX`, which only the daemon makes.
        form: How the bytes are cut into objects.
        layers: Layers that read this state.
        owner_layers: Layers that keep it; empty means every one of `layers`.
        shards: Number of ranks that each hold a part of every object.
        first_rank: Rank that holds shard 0; the ranks behind it hold the other shards in order.
        replicas: Ranks, side by side, that hold the same shard; the first of them brings it, all may read it.
        cacheable: False takes the group out of every verdict.
        tokens_per_row: Tokens that one row stands for.
        rows_per_page: Rows of one page.
        row_bytes: Bytes of one row of one owner layer and shard; 0 for snapshots that have no rows.
        page_bytes: Bytes of one page of one owner layer and shard, padding included.
        window: Tokens of the window, 0 if there is none.
        halo_rows: Raw rows before the last whole row that the next one still needs.
        speculative_units: Further units that a speculative engine needs before a boundary.
        coupled_to: Name of the group whose rows this one indexes or continues; empty if none.
        alignment: Alignment of every object, bytes, a power of two or 576.
        layout_id: Name of the page format, for conversion.
        exact_replay_tokens: Tokens whose recomputation rebuilds the state bit for bit, 0 if none does.
        approx_replay_tokens: Tokens whose recomputation rebuilds it approximately, 0 if that is not allowed.
        dtype: Element type; what is not ``bfloat16`` is never quantised.
    """

    name: Label
    kind: Kind
    form: Form
    layers: LayerIds
    owner_layers: LayerIds = ()
    shards: Annotated[int, Meta(ge=1, le=1024)] = 1
    first_rank: Annotated[int, Meta(ge=0, le=1023)] = 0
    replicas: Annotated[int, Meta(ge=1, le=1024)] = 1
    cacheable: bool = True
    tokens_per_row: Positive = 1
    rows_per_page: Positive = 1
    row_bytes: Count = 0
    page_bytes: Positive
    window: Count = 0
    halo_rows: Count = 0
    speculative_units: Annotated[int, Meta(ge=0, le=64)] = 0
    coupled_to: Text = ""
    alignment: Positive = 64
    layout_id: Text = ""
    exact_replay_tokens: Count = 0
    approx_replay_tokens: Count = 0
    dtype: Text = ""

    @property
    def owners(self) -> int:
        """Number of layers that keep the state."""
        return len(self.owner_layers) or len(self.layers)

    @property
    def end_rank(self) -> int:
        """The rank behind the last one that holds a part."""
        return self.first_rank + self.shards * self.replicas

    def rank_of(self, shard: int) -> int:
        """Return the rank that brings a shard; its number is that of the ticket under which it does."""
        return self.first_rank + shard * self.replicas

    def shard_at(self, rank: int) -> int | None:
        """Return the shard that a rank holds, None if it holds none of this group."""
        return (rank - self.first_rank) // self.replicas if self.first_rank <= rank < self.end_rank else None

    @property
    def page_tokens(self) -> int:
        """Tokens that one page stands for (forms `rows` and `paged_window`)."""
        return self.tokens_per_row * self.rows_per_page


class Layout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Identity of everything that decides what the bytes mean. Field by field compared in layer 2 of the verdict.

    Attributes:
        model: Name of the model; says nothing about its weights.
        preset: Preset that the groups must complete; empty if the layout answers for its own completeness.
        weights_digest: Digest of the weights; the daemon refuses an empty one.
        revision: Revision of the model.
        rope_digest: Digest of the position encoding's parameters.
        config_digest: Digest of the configuration.
        tokenizer_digest: Digest of the tokenizer; part of the index key.
        dtype: Element type of the computation.
        quantisation: Quantisation of the weights, empty if none.
        scale_provenance: Where the scales of quantised state come from, empty if none.
        ranks: Tensor and pipeline ranks as the engine runs them, for example ``tp1pp1``.
        adapter_digest: Digest of the LoRA adapter, empty for the base model.
        abi: Kernel ABI of each group, by group name.
        hash_algorithm: Name of the chain hash; part of the index key.
        block_tokens: Tokens of a block: a common multiple of what the groups store as a unit.
        checkpoint_tokens: Distance of the boundaries at which states are worth keeping, 0 for none.
        allow_approx: The model's owner accepts approximate state: short replays, and what comes off a lossy tier.
        strict_provenance: States of one run are never joined with rows of another, should these differ by a bit.
        groups: All groups, in the order in which the engine wants them reported.
    """

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    preset: Text = ""
    weights_digest: Digest = ""
    revision: Text = ""
    rope_digest: Digest = ""
    config_digest: Digest = ""
    tokenizer_digest: Digest = ""
    dtype: Text = ""
    quantisation: Text = ""
    scale_provenance: Text = ""
    ranks: Text = "tp1pp1"
    adapter_digest: Digest = ""
    abi: Annotated[dict[Label, KernelABI], Meta(max_length=256)]
    hash_algorithm: Label = "kvledger.blake3"
    block_tokens: Annotated[int, Meta(ge=1, le=65536)]
    checkpoint_tokens: Count = 0
    allow_approx: bool = False
    strict_provenance: bool = False
    groups: Annotated[tuple[GroupSpec, ...], Meta(min_length=1, max_length=64)]

    @cached_property
    def digest(self) -> bytes:
        """BLAKE3-256 of the layout's msgpack with map keys in order, 32 bytes."""
        return blake3.blake3(msgspec.msgpack.encode(self, order="deterministic")).digest()

    def group(self, name: str) -> GroupSpec:
        """Return the group of that name; raises KeyError."""
        for spec in self.groups:
            if spec.name == name:
                return spec
        raise KeyError(name)
