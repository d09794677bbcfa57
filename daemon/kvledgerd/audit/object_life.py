"""The life of one object by the log alone."""

from pathlib import Path

from kvledgerd.audit.names import ObjectName
from kvledgerd.audit.questions.asking import asking
from kvledgerd.audit.questions.lives import ObjectLife, life_of

__all__ = ["object_life"]


def object_life(data: Path, name: ObjectName) -> ObjectLife:
    """Return everything that the log tells about one object.

    Args:
        data: The data directory.
        name: The object.

    Raises:
        CallerError: the log knows no such object.
    """
    with asking(data, log_only=True) as asked:
        return life_of(asked.connection, name)
