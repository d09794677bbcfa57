"""What the demo is doing now: a spinner on a terminal, one line a step on a pipe; always on stderr.

Stdout is left to the result, so that the last line of the machine form is one JSON object whoever reads along.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console

__all__ = ["Progress", "Step"]


class Step:
    """One step of the demo; its note is shown when it is done."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.note = ""


class Progress:
    """Shows steps as they begin and end, and knows which one is running."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self.now = ""

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        """Show a step while it runs, and how long it took."""
        self.now = text
        step, began = Step(text), time.monotonic()
        with self._running(text):
            yield step
        took = f"{time.monotonic() - began:.1f} s"
        if self._console.is_terminal:
            note = f": {step.note}" if step.note else ""
            self._console.print(f"[green]done[/green] {text}{note} [dim]({took})[/dim]")
        else:
            note = f" {step.note}" if step.note else ""
            self._write(f"{note} ({took})\n")

    def _running(self, text: str) -> AbstractContextManager[object]:
        if self._console.is_terminal:
            return self._console.status(text)
        self._write(f"{text} ...")
        return nullcontext()

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
