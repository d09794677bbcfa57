"""The life of one object by the log alone."""

from pathlib import Path

from kvledgerd.audit.names import ObjectName
from kvledgerd.audit.questions.asking import asking
from kvledgerd.audit.questions.lives import ObjectLife, life_of
from kvledgerd.audit.replay import Damage

__all__ = ["object_life"]


def object_life(data: Path, name: ObjectName, damage: Damage | None = None) -> ObjectLife:
    """Return everything that the log tells about one object.

    Args:
        data: The data directory.
        name: The object.
        damage: Where to put the damaged place of a log.

    Raises:
        CallerError: the log knows no such object.
    """
    with asking(data, log_only=True) as asked:
        if damage is not None and asked.problem is not None:
            damage.append(asked.problem)
        return life_of(asked.connection, name)
