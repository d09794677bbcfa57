"""Layer 2: in what two layouts differ.

Objects are shared only between layouts that are equal in every field. When something is stored under another layout,
the verdict names the fields that differ, so that nobody has to guess why a warm cache answers with a miss.
"""

from kvledger.layout import GroupSpec, KernelABI, Layout
from kvledger.verdict import Code
from kvledgerd.core.index import Node
from kvledgerd.core.known_layout import KnownLayout

__all__ = ["differences", "foreign_layout", "mismatch"]

_IDENTITY = (
    "model",
    "weights_digest",
    "revision",
    "rope_digest",
    "config_digest",
    "adapter_digest",
    "dtype",
    "quantisation",
    "scale_provenance",
    "ranks",
)
_SHOWN = 24


def differences(stored: Layout, asked: Layout) -> list[str]:
    """Return the fields in which two layouts differ, identity before kernel ABI, each with both values."""
    different = [f for f in _IDENTITY if getattr(stored, f) != getattr(asked, f)]
    found = [_show(f, getattr(stored, f), getattr(asked, f)) for f in different]
    for name in sorted(stored.abi.keys() | asked.abi.keys()):
        one, other = stored.abi.get(name), asked.abi.get(name)
        if one != other:
            found += _abi_differences(name, one, other)
    found += _group_differences(stored, asked)
    if not found and stored.digest == asked.digest:
        return ["weights_digest: not named, so that only the engine that stored it may use it"]
    if not found:
        found = _fields_that_differ("", stored, asked)
    return found


def _abi_differences(name: str, stored: KernelABI | None, asked: KernelABI | None) -> list[str]:
    if stored is None or asked is None:
        return [f"abi.{name}: {'not stored' if stored is None else 'not asked for'}"]
    return _fields_that_differ(f"abi.{name}.", stored, asked)


def _group_differences(stored: Layout, asked: Layout) -> list[str]:
    """Compare groups of one name; those that only one layout has are told by their ABI, of which each has one."""
    one, other = ({group.name: group for group in layout.groups} for layout in (stored, asked))
    pairs = [(name, one[name], group) for name, group in other.items() if name in one and one[name] != group]
    found = [field for name, *pair in pairs for field in _fields_that_differ(f"groups.{name}.", *pair)]
    if not found and one.keys() == other.keys() and stored.groups != asked.groups:
        found.append("groups: in another order")
    return found


def _fields_that_differ(at: str, stored: Layout | GroupSpec | KernelABI, asked: object) -> list[str]:
    pairs = [(f, getattr(stored, f), getattr(asked, f)) for f in stored.__struct_fields__]
    return [_show(f"{at}{field}", one, other) for field, one, other in pairs if one != other]


def _show(field: str, stored: object, asked: object) -> str:
    return f"{field}: stored {str(stored)[:_SHOWN]!r}, asked {str(asked)[:_SHOWN]!r}"


def mismatch(stored: Layout, asked: Layout) -> tuple[Code, str]:
    """Return the code and the detail of a layer-2 cut."""
    found = differences(stored, asked)
    code = Code.ABI_MISMATCH if found[0].startswith(("abi.", "groups", "block")) else Code.IDENTITY_MISMATCH
    return code, "; ".join(found)[:480]


def foreign_layout(layouts: dict[int, KnownLayout], node: Node, asked: KnownLayout) -> KnownLayout | None:
    """Return the layout nearest to the one asked for among those that keep something at a node; None if none does."""
    numbers = {c.layout for c in (*node.cells, *node.boundaries) if c.layout != asked.number and c.memory | c.disk}
    others = [layouts[number] for number in sorted(numbers)]
    return min(others, key=lambda o: (len(differences(o.layout, asked.layout)), o.number), default=None)
