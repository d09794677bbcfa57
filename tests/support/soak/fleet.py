"""The engines of a soak: processes that are killed at random and replaced at once."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from support.soak.tally import COUNTED, Tally

__all__ = ["Fleet"]


class Fleet:
    """Engines that run until they are killed.

    Args:
        socket: The daemon's socket.
        directory: Where their counters and what they complain about go.
        count: How many run at the same time.
        chance: Decides which one is killed.
    """

    def __init__(self, socket: Path, directory: Path, count: int, chance: random.Random) -> None:
        self._socket = socket
        self._directory = directory
        self._chance = chance
        self._tallies = [Tally(directory / f"tally-{number}") for number in range(count)]
        self._running: list[subprocess.Popen] = []
        self._output = (directory / "engines.log").open("ab")
        self.kills = 0
        self.deaths = 0

    def __enter__(self):
        self._running = [self._start(number) for number in range(len(self._tallies))]
        return self

    def __exit__(self, *_):
        for engine in self._running:
            engine.kill()
            engine.wait()
        self._output.close()

    def _start(self, number: int) -> subprocess.Popen:
        seed = str(self._chance.randrange(1 << 30))
        command = [sys.executable, "-m", "support.soak.engine", self._socket, self._directory / f"tally-{number}", seed]
        return subprocess.Popen(command, stdout=self._output, stderr=self._output, cwd=Path(__file__).parents[2])

    def kill_one(self) -> None:
        """Kill an engine wherever it is, and start another one in its place."""
        number = self._chance.randrange(len(self._running))
        self._running[number].kill()
        self._running[number].wait()
        self._running[number] = self._start(number)
        self.kills += 1

    def revive(self) -> None:
        """Replace engines that ended by themselves, which none should."""
        for number, engine in enumerate(self._running):
            if engine.poll() is not None:
                self.deaths += 1
                self._running[number] = self._start(number)

    def counts(self) -> dict[str, int]:
        """Return what all engines counted together, those that are dead included."""
        read = [tally.read() for tally in self._tallies]
        return {name: sum(one[name] for one in read) for name in COUNTED}

    def refusals(self) -> dict[str, int]:
        """Return how often each type of error refused something."""
        lines = (self._directory / "engines.log").read_text(errors="replace").splitlines()
        return dict(Counter(line.split(": ")[1] for line in lines if line.startswith("refused: ")))

    def complaints(self) -> str:
        """Return the end of what engines wrote to their log."""
        return (self._directory / "engines.log").read_text(errors="replace")[-4000:]
