"""Between a live cache and the bytes of objects.

An object holds, owner layer after owner layer, part after part, the rows of that part in order; of a snapshot each
owner's page is padded with zeros to the most rows that it can have. The bytes are moved by the pack and unpack kernels,
on a CPU by their references. Rows can be taken from any later cache; a snapshot is true only of a cache that stands at
its boundary, so encoding one from another cache is refused.

Nothing here calls a layer's `crop`: on compressed layers it removes keys and leaves the compressor's state, and the
cache is silently wrong.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import torch
from blake3 import blake3
from transformers import DynamicCache

from kvledger.adapters._facets import Facet, Span
from kvledger.adapters._layers import revive
from kvledger.adapters._plan import Plan
from kvledger.errors import CallerError
from kvledger.geometry import Geometry

__all__ = ["Piece", "decode", "encode", "position_of", "state_digest"]


class Piece(Protocol):
    """What the codec must know of an object; slots of a unit and handles of a hit have it."""

    @property
    def group(self) -> str:
        """Name of the group."""

    @property
    def first_token(self) -> int:
        """First token it is true for; the boundary itself for snapshots."""

    @property
    def tokens(self) -> int:
        """Tokens it is true for, 0 for snapshots."""

    @property
    def length(self) -> int:
        """Bytes."""


def position_of(cache: DynamicCache) -> int | None:
    """Return the position (tokens) at which a cache stands, None if none of its layers counts tokens."""
    counting = (layer for layer in cache.layers if hasattr(layer, "get_seq_length"))
    return max((int(layer.get_seq_length()) for layer in counting), default=None)


def encode(plan: Plan, cache: DynamicCache, piece: Piece, into: memoryview) -> None:
    """Write the bytes of one object.

    Args:
        plan: Plan of the model that made the cache.
        cache: A cache of batch size one; for snapshots it stands at ``piece.first_token``.
        piece: The object.
        into: Writable, ``piece.length`` bytes, contiguous; every byte is written.

    Raises:
        CallerError: the cache is not where the object is true, or is not one that can be saved.
    """
    from kvledger_kernels.objects import pack_tensors  # noqa: PLC0415 - adapters import the kernels when they need them

    facet, owners = plan.facets[piece.group], plan.owners(piece.group)
    _check_saveable(plan, cache, piece)
    first, rows = _rows_of(facet, piece)
    device = plan.devices[owners[0]]
    padding = torch.zeros(_padding(facet, piece, len(owners)), dtype=torch.uint8, device=device)
    tensors: list[torch.Tensor] = []
    for owner in owners:
        held = [(part, part.read(cache.layers[owner])) for part in facet.parts]
        tensors += [part.cut(tensor, first, rows).to(device) for part, tensor in held if tensor is not None]
        tensors.append(padding)
    pack_tensors(tensors, into)


def decode(plan: Plan, position: int, pieces: Iterable[tuple[Piece, Any]]) -> DynamicCache:
    """Make a cache that goes on bit for bit as the one that was saved at `position`.

    Args:
        plan: Plan of the model that will go on.
        position: The boundary, tokens.
        pieces: Every object that a resume at `position` needs, with its bytes. They are copied, never kept.

    Raises:
        CallerError: objects are missing or do not join.
    """
    cache = DynamicCache(config=plan.config)
    held: dict[str, list[tuple[Piece, Any]]] = {name: [] for name in plan.facets}
    for piece, data in pieces:
        held[piece.group].append((piece, data))
    for name, facet in plan.facets.items():
        ordered = sorted(held[name], key=lambda item: item[0].first_token)
        _check_joined(name, facet, position, [piece for piece, _ in ordered])
        _fill(plan, cache, name, position, ordered)
    for layer in cache.layers:
        revive(layer, position)
    return cache


def state_digest(plan: Plan, cache: DynamicCache, position: int) -> str:
    """Return the BLAKE3-256 of all bytes that a resume at `position` needs, as hex; equal digests, equal states."""
    geometry, digest = Geometry(plan.layout), blake3()
    for item in geometry.unit_objects(0, position, boundary=True):
        piece = _Named(plan.layout.groups[item.group].name, item.first_token, item.tokens, item.length)
        data = bytearray(item.length)
        encode(plan, cache, piece, memoryview(data))
        digest.update(data)
    return digest.hexdigest()


class _Named(NamedTuple):
    """An object by itself, of no unit and no hit."""

    group: str
    first_token: int
    tokens: int
    length: int


def _check_saveable(plan: Plan, cache: DynamicCache, piece: Piece) -> None:
    facet, end, counted = plan.facets[piece.group], piece.first_token + piece.tokens, position_of(cache)
    # Recurrent layers count no tokens; a cache of nothing else is taken at its owner's word
    stands = end if counted is None else counted
    if tuple(map(type, cache.layers)) != plan.classes:
        wrong = "a cache with layers of other classes"
        remedy = "save the DynamicCache(config=model.config) of the model"
    elif any(getattr(layer, "record_past", False) for layer in cache.layers):
        wrong = "the cache records its past, so its windows are longer than they say"
        remedy = "save from a cache on which activate_past_recording was not called"
    elif stands < end if facet.span is Span.ROWS else stands != end:
        wrong = f"the cache stands at {stands}, {piece.group} is to be saved at {end}"
        remedy = "cut the prefill at the boundary and save there"
    elif not _is_whole(plan, cache, piece.group, stands):
        wrong = f"{piece.group} has not the shape of one sequence at {stands}"
        remedy = "save one sequence from a cache that only ever grew; crop leaves compressed layers inconsistent"
    else:
        return
    raise CallerError(wrong, field="cache", remedy=remedy)


def _is_whole(plan: Plan, cache: DynamicCache, group: str, position: int) -> bool:
    facet = plan.facets[group]
    rows = facet.rows_at(position)
    parts = [(part, part.read(cache.layers[owner])) for owner in plan.owners(group) for part in facet.parts]
    return all(rows == 0 if tensor is None else tuple(tensor.shape) == part.shape_of(rows) for part, tensor in parts)


def _check_joined(name: str, facet: Facet, position: int, pieces: list[Piece]) -> None:
    if facet.span is Span.ROWS:
        reached = 0
        for piece in pieces:
            reached = piece.first_token + piece.tokens if piece.first_token == reached else reached
        whole = reached // facet.tokens_per_row == position // facet.tokens_per_row
    else:
        need = facet.span is not Span.TAIL or facet.rows_at(position) > 0
        whole = [piece.first_token for piece in pieces] == [position] * need
    if not whole:
        raise CallerError(f"the objects of {name} do not reach {position}", field=name, remedy="treat it as a miss")


def _fill(plan: Plan, cache: DynamicCache, name: str, position: int, pieces: list[tuple[Piece, Any]]) -> None:
    facet, owners = plan.facets[name], plan.owners(name)
    absent = facet.span is Span.HALO and facet.rows_at(position) == 0
    chunks = [_unpack(facet, piece, data, len(owners), plan.devices[owners[0]]) for piece, data in pieces]
    for index, owner in enumerate(owners):
        for number, part in enumerate(facet.parts):
            tensor = part.join([chunk[index][number] for chunk in chunks], plan.devices[owner])
            part.write(cache.layers[owner], None if absent else tensor)


def _unpack(facet: Facet, piece: Piece, data: Any, owners: int, device: torch.device) -> list[list[torch.Tensor]]:
    """Return the tensors of one object: for each owner those of its parts, rows first."""
    from kvledger_kernels.objects import TensorSpec, unpack_tensors  # noqa: PLC0415 - see encode

    _, rows = _rows_of(facet, piece)
    page = [TensorSpec((rows, *part.row_shape), part.dtype) for part in facet.parts]
    page.append(TensorSpec((_padding(facet, piece, owners),), torch.uint8))
    tensors, _ = unpack_tensors(data, page * owners, device=device)
    return [tensors[start : start + len(page) - 1] for start in range(0, len(tensors), len(page))]


def _rows_of(facet: Facet, piece: Piece) -> tuple[int, int]:
    """Return the first row that an object holds, within its parts, and the number of rows."""
    if facet.span is not Span.ROWS:
        return 0, facet.rows_at(piece.first_token)
    return piece.first_token // facet.tokens_per_row, piece.tokens // facet.tokens_per_row


def _padding(facet: Facet, piece: Piece, owners: int) -> int:
    """Return the bytes with which each owner's page of an object is padded."""
    return piece.length // owners - _rows_of(facet, piece)[1] * facet.row_bytes
