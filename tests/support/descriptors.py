"""What a process has open, as the kernel tells it of a process that goes on opening and closing."""

from collections.abc import Iterator
from pathlib import Path

__all__ = ["open_files"]


def open_files(pid: int | str = "self") -> Iterator[tuple[Path, str]]:
    """Give each descriptor of a process, as a path to open or stat, with what it stands for.

    The kernel lists the numbers first and is asked about each of them afterwards. One that was closed in between is
    left out, and so is the listing's own when a process looks at itself.
    """
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(path.readlink())
        except FileNotFoundError:
            continue
        yield path, target
