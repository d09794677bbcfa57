"""The note that a clean stop leaves behind: the last event when the log was closed.

Events of class `session` ride in the next frame, so after a crash one batch of them may be missing. Whether there was a
crash is told by this: the log ends exactly where the note says, or it does not.
"""

from pathlib import Path
from typing import Final

__all__ = ["read_stopped", "write_stopped"]

_NAME: Final = "stopped"


def write_stopped(directory: Path, last_seq: int) -> None:
    """Leave the note. It needs no sync: one that is missing or old only says "a crash", which is what it then was."""
    draft = directory / f"{_NAME}.draft"
    draft.write_text(f"{last_seq}\n", encoding="ascii")
    draft.rename(directory / _NAME)


def read_stopped(directory: Path) -> int | None:
    """Return the seq in the note; None if there is none that can be read."""
    try:
        return int((directory / _NAME).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
