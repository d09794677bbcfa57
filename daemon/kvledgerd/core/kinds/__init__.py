"""The five kinds, one module each: what recovers a group of that kind at a boundary, and when a copy may be dropped.

`RULES` routes a kind to its module; it is complete, and there is no branch for anything else.
"""

from kvledger.errors import RoutingError
from kvledger.kinds import Kind
from kvledgerd.core.kinds import compressed_kv, disk_prefix, indexer_state, swa_window, uncompressed_tail
from kvledgerd.core.kinds.rules import KindRules

__all__ = ["RULES", "require_kind"]

RULES: dict[Kind, KindRules] = {
    Kind.COMPRESSED_KV: compressed_kv.RULES,
    Kind.UNCOMPRESSED_TAIL: uncompressed_tail.RULES,
    Kind.SWA_WINDOW: swa_window.RULES,
    Kind.INDEXER_STATE: indexer_state.RULES,
    Kind.DISK_PREFIX: disk_prefix.RULES,
}


def require_kind(named: Kind, actual: Kind, field: str) -> None:
    """Check that a command names the kind of what it means.

    Raises:
        RoutingError: it names another.
    """
    if named is not actual:
        raise RoutingError(
            f"the command names {Kind(named).name}, the object is {actual.name}",
            field=field,
            remedy="name the kind of the object's group, as the layout declares it",
        )
