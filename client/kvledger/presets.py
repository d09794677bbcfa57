"""Which groups the state of known models consists of, as data, and the check that a layout declares all of them.

A layout that forgets a group makes every verdict on it wrong in the same silent way: a hit is called complete that is
not. For a known model that is found here, before a byte is stored. A preset knows what follows from the architecture
(kind, tokens a row, window, halo, coupling); page sizes, alignments and ABIs are the engine's and stay its own.

The files in `presets/` say in `source` where each number comes from.
"""

from importlib.resources import files
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from kvledger.errors import CallerError, LayoutError
from kvledger.kinds import Kind
from kvledger.layout import GroupSpec, Layout

__all__ = ["Preset", "PresetGroup", "check_complete", "find", "load", "names"]

Count = Annotated[int, Meta(ge=0)]


class PresetGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group that the architecture has, whatever the engine; a number of 0 is not fixed by it.

    Attributes:
        name: What the documentation calls it; a layout may name it as it likes.
        kind: Name of its kind.
        layers: Number of layers that keep it, 0 if it depends on the model's size.
        tokens_per_row: Tokens that one row stands for.
        window: Tokens of its window.
        halo: Whether rows before the last whole row belong to it.
        couples_to: Name of the preset's group that it indexes or continues, empty if none.
        row_bytes: Bytes of a row, or of the state, of one layer in the form the source names; 0 if it names none.
    """

    name: str
    kind: str
    layers: Count
    tokens_per_row: Count = 0
    window: Count = 0
    halo: bool = False
    couples_to: str = ""
    row_bytes: Count = 0

    def fits(self, group: GroupSpec) -> bool:
        """Tell whether a declared group is this one, coupling aside."""
        return (
            group.kind is Kind[self.kind]
            and (not self.tokens_per_row or group.tokens_per_row == self.tokens_per_row)
            and (not self.window or group.window == self.window)
            and (not self.halo or group.halo_rows > 0)
        )

    def __str__(self) -> str:
        parts = [self.kind]
        parts += [f"{self.tokens_per_row} tokens a row"] if self.tokens_per_row else []
        parts += [f"a window of {self.window}"] if self.window else []
        parts += ["a halo"] if self.halo else []
        parts += [f"coupled to {self.couples_to}"] if self.couples_to else []
        return f"{self.name} ({', '.join(parts)})"


class Preset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One architecture.

    Attributes:
        name: Name for `Layout.preset`.
        models: Names of models that are of it; a layout with one of these names is checked as well.
        layers: Number of layers, 0 if it depends on the model's size.
        source: Where the numbers come from.
        groups: Its groups.
    """

    name: str
    models: tuple[str, ...]
    layers: Count
    source: str
    groups: tuple[PresetGroup, ...]


def names() -> list[str]:
    """Return the names of all presets, sorted."""
    return sorted(_ALL)


def load(name: str) -> Preset:
    """Return a preset.

    Raises:
        CallerError: There is none of that name.
    """
    found = _ALL.get(name)
    if found is None:
        raise CallerError(f"no preset {name!r}", field="preset", remedy=f"use one of {', '.join(names())}, or none")
    return found


def find(layout: Layout) -> Preset | None:
    """Return the preset that a layout names, or that lists its model; None if it answers for itself.

    Raises:
        CallerError: It names one that does not exist.
    """
    if layout.preset:
        return load(layout.preset)
    return next((preset for preset in _ALL.values() if layout.model in preset.models), None)


def check_complete(layout: Layout) -> None:
    """See that a layout declares every group of its preset; one that has none passes on its own word.

    Raises:
        LayoutError: Lists the groups that lack.
        CallerError: It names a preset that does not exist.
    """
    preset = find(layout)
    if preset is None:
        return
    lacking = [str(group) for group in preset.groups if not _declared(group, preset, layout)]
    if lacking:
        raise LayoutError(
            f"{preset.name} also keeps {'; '.join(lacking)}",
            field="groups",
            remedy="declare these groups, with cacheable=False for one that is never stored",
        )


def _declared(wanted: PresetGroup, preset: Preset, layout: Layout) -> bool:
    return any(wanted.fits(group) and _couples(wanted, group, preset, layout) for group in layout.groups)


def _couples(wanted: PresetGroup, group: GroupSpec, preset: Preset, layout: Layout) -> bool:
    if not wanted.couples_to:
        return True
    if not group.coupled_to:
        return False
    partner = next(g for g in preset.groups if g.name == wanted.couples_to)
    return partner.fits(layout.group(group.coupled_to))


def _read() -> dict[str, Preset]:
    decoder = msgspec.json.Decoder(Preset)
    folder = files("kvledger") / "presets"
    found = (decoder.decode(file.read_bytes()) for file in folder.iterdir() if file.name.endswith(".json"))
    return {preset.name: preset for preset in found}


# Read with the module and not at first use, which would be on somebody's event loop.
_ALL: Final = _read()
