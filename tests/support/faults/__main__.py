"""Run all faults that the design lists and print what became of them: `make faults`, or `python -m support.faults`.

Progress goes to stderr, and Ctrl-C ends it with what was tried so far; a table for people and then, on the last line,
one JSON object go to stdout. The exit code is 0 only if every case that was tried survived.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

import pytest

from support.faults.groups import GROUPS
from support.faults.tally import Tally


def main():
    """Run the groups and return the exit code."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--short", action="store_true", help="the default tests only, a few minutes")
    parser.add_argument("--only", default="", metavar="TEXT", help="only groups whose name holds TEXT")
    options = parser.parse_args()
    chosen = [group for group in GROUPS if options.only in group.name]
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as progress:
        tally = Tally(chosen, progress)
        files = list(dict.fromkeys(group.file for group in chosen))
        selection = ["-m", "not slow"] if options.short else []
        code = pytest.main(["-q", "-p", "no:cacheprovider", *selection, *files], plugins=[tally])
    report(tally)
    return int(code)


def report(tally):
    """Print the table and the object."""
    width = max(map(len, tally.counts))
    lines = [f"\n{'group':<{width}} {'tried':>8} {'survived':>8} {'skipped':>8} {'seconds':>8}  why"]
    for name, count in tally.counts.items():
        numbers = f"{count.tried:>8,} {count.survived:>8,} {count.skipped:>8,} {count.seconds:>8,.1f}"
        lines.append(f"{name:<{width}} {numbers}  {reasons(count)}")
    groups = {
        name: {"tried": c.tried, "survived": c.survived, "skipped": c.skipped, "why": reasons(c)}
        for name, c in tally.counts.items()
    }
    lines.append(json.dumps({**groups, **tally.breaches}))
    sys.stdout.write("\n".join(lines) + "\n")


def reasons(count):
    """Return why cases were skipped, the commonest reason first."""
    return "; ".join(f"{why} ({number})" for why, number in count.why.most_common(3))


if __name__ == "__main__":
    sys.exit(main())
