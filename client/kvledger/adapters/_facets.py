"""What one layer of a Transformers cache keeps, as facets made of parts.

The cache classes have no export interface: their state lies in attributes, some of them dicts, each tensor with its
row axis in another place. A `Part` is one such tensor and knows where its rows lie; a `Facet` is what one layer keeps
of one kind of state. Layers whose facets are equal belong to one group of the layout, so a facet holds all that decides
about bytes and nothing about a particular layer.

In bytes the row axis of a part comes first and the other axes follow in their order, so that one row is one run.
"""

import enum
import math
from typing import Any, NamedTuple

import torch

from kvledger.kinds import Kind

__all__ = ["Facet", "Part", "Span", "part_of"]


class Span(enum.Enum):
    """How many rows the parts of a facet have at position P."""

    ROWS = "rows"
    """One row per ``tokens_per_row`` tokens since the beginning; the only span that is cut into blocks."""
    WINDOW = "window"
    """The last W - 1 tokens; the next query adds itself."""
    TAIL = "tail"
    """The tokens after the last whole row."""
    HALO = "halo"
    """The raw rows of the last whole row; none before there is one."""
    FIXED = "fixed"
    """State of constant size, without rows."""


class Part(NamedTuple):
    """One tensor of a cache layer.

    Attributes:
        attribute: Attribute of the layer.
        key: Entry of that attribute if it is a dict, else None.
        shape: Shape with 0 at the row axis, batch of one included.
        axis: The row axis; None if there is none.
        dtype: Element type.
    """

    attribute: str
    key: str | int | None
    shape: tuple[int, ...]
    axis: int | None
    dtype: torch.dtype

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row; of the whole tensor if it has no row axis."""
        return tuple(n for i, n in enumerate(self.shape) if i != self.axis)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row; of the whole tensor if it has no row axis."""
        return math.prod(self.row_shape) * self.dtype.itemsize

    def shape_of(self, rows: int) -> tuple[int, ...]:
        """Return the shape that the layer keeps so many rows in."""
        return tuple(rows if i == self.axis else n for i, n in enumerate(self.shape))

    def read(self, layer: Any) -> torch.Tensor | None:
        """Return the tensor as the layer holds it now."""
        held = getattr(layer, self.attribute)
        found: torch.Tensor | None = held if self.key is None else held[self.key]
        return found

    def write(self, layer: Any, tensor: torch.Tensor | None) -> None:
        """Put a tensor into the layer."""
        if self.key is None:
            setattr(layer, self.attribute, tensor)
        else:
            getattr(layer, self.attribute)[self.key] = tensor

    def cut(self, tensor: torch.Tensor, first: int, rows: int) -> torch.Tensor:
        """Return rows [first, first + rows) of a tensor with the row axis in front; on a GPU a view."""
        lined = tensor.unsqueeze(0) if self.axis is None else tensor.movedim(self.axis, 0)
        rowwise = lined[first : first + rows].detach()
        # A kernel gathers rows with gaps in one launch, its reference would copy them one by one
        return rowwise.contiguous() if rowwise.device.type == "cpu" else rowwise

    def join(self, chunks: list[torch.Tensor], device: torch.device) -> torch.Tensor:
        """Return the tensor whose rows are those of all chunks, contiguous in the shape the layer keeps it in.

        Args:
            chunks: Consecutive rows, the row axis in front; none gives a tensor without rows.
            device: Where the tensor is made.
        """
        rows = torch.cat(chunks) if chunks else torch.empty((0, *self.row_shape), dtype=self.dtype)
        return (rows[0] if self.axis is None else rows.movedim(0, self.axis)).contiguous().to(device)

    def __str__(self) -> str:
        name = self.attribute if self.key is None else f"{self.attribute}.{self.key}"
        dims = ",".join("*" if i == self.axis else str(n) for i, n in enumerate(self.shape))
        return f"{name}[{dims}]{str(self.dtype).removeprefix('torch.')}"


class Facet(NamedTuple):
    """What one layer keeps of one kind of state.

    Attributes:
        role: Short name, unique within one layer; the group's name, numbered if several groups have it.
        kind: The kind of state.
        span: How many rows its parts have at a position.
        parts: The tensors, in the order of their bytes.
        tokens_per_row: Tokens of a row of `Span.ROWS`; of the rows that `Span.TAIL` and `Span.HALO` belong to.
        window: W of a `Span.WINDOW`.
        coupled: Role of the facet of the same layer whose rows it indexes or continues; empty if none.
    """

    role: str
    kind: Kind
    span: Span
    parts: tuple[Part, ...]
    tokens_per_row: int = 1
    window: int = 0
    coupled: str = ""

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of all parts."""
        return sum(part.row_bytes for part in self.parts)

    @property
    def capacity(self) -> int:
        """Most rows that the parts of a snapshot can have; 1 if they have no rows."""
        return {
            Span.WINDOW: self.window - 1,
            Span.TAIL: self.tokens_per_row - 1,
            Span.HALO: self.tokens_per_row,
        }.get(self.span, 1)

    def rows_at(self, position: int) -> int:
        """Return the rows that every part has when the cache stands at `position` (tokens)."""
        return {
            Span.ROWS: position // self.tokens_per_row,
            Span.WINDOW: min(position, self.window - 1),
            Span.TAIL: position % self.tokens_per_row,
            Span.HALO: self.tokens_per_row if position >= self.tokens_per_row else 0,
            Span.FIXED: 1,
        }[self.span]


def part_of(layer: Any, attribute: str, key: str | int | None = None, axis: int | None = None) -> Part | None:
    """Return the part that a layer holds after the probing forward, None if it holds nothing there.

    Args:
        layer: A layer of a cache of batch size one.
        attribute: Attribute of the layer.
        key: Entry of that attribute if it is a dict.
        axis: The row axis, counted from the front; None if the tensor has none.
    """
    held = getattr(layer, attribute)
    tensor = held if key is None else held[key]
    if tensor is None:
        return None
    shape = tuple(0 if i == axis else n for i, n in enumerate(tensor.shape))
    return Part(attribute, key, shape, axis, tensor.dtype)
