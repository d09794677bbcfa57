"""A pytest plugin that counts the cases of each group while the tests run."""

from __future__ import annotations

import fnmatch
import functools
import time
from collections import Counter
from dataclasses import dataclass, field

from support.promises import AcknowledgedLostError, MisjudgedError, Skip, WrongHitError

PROGRESS_S = 2.0
BREACHES = {
    AcknowledgedLostError.__name__: "acknowledged_lost",
    MisjudgedError.__name__: "misjudged",
    WrongHitError.__name__: "wrong_hits",
}


@dataclass
class Count:
    """What one group came to, and how long it took; `why` counts the reasons of what was skipped."""

    tried: int = 0
    survived: int = 0
    seconds: float = 0.0
    why: Counter[str] = field(default_factory=Counter)

    @property
    def skipped(self):
        """Cases that could not be tried."""
        return sum(self.why.values())


class Tally:
    """Selects the tests of all groups, counts their cases, and says every two seconds how far it is.

    Args:
        groups: The groups to run.
        progress: Where to say so; pytest keeps the usual streams for itself.

    Attributes:
        counts: Group name to count.
        breaches: How often each promise was broken. A failure that names no promise counts as misjudged.
    """

    def __init__(self, groups, progress):
        self.counts = {group.name: Count() for group in groups}
        self._chosen = groups
        self.breaches = dict.fromkeys(BREACHES.values(), 0)
        self._progress = progress
        self._said = 0.0
        self._groups = {}
        self._here = Count()
        self._judging = False

    def pytest_collection_modifyitems(self, config, items):
        """Keep what belongs to a group."""
        kept = []
        for item in items:
            file = item.path.relative_to(config.rootpath).as_posix()
            for group in self._chosen:
                if file == group.file and any(fnmatch.fnmatch(item.name, test) for test in group.tests):
                    self._groups[item.nodeid] = group
                    kept.append(item)
                    break
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    def pytest_runtest_setup(self, item):
        """Put a counter around the judge of the test's module."""
        group = self._groups[item.nodeid]
        self._here, self._judging = Count(), False
        if group.judge:
            judge = getattr(item.module, group.judge)
            setattr(item.module, group.judge, self._counted(group, getattr(judge, "__wrapped__", judge)))

    def pytest_runtest_logreport(self, report):
        """Add up one test when its outcome is known."""
        self.counts[self._groups[report.nodeid].name].seconds += report.duration
        if report.when == "setup" and report.passed:
            return
        if report.when == "teardown" and not report.failed:
            return
        group, here = self._groups[report.nodeid], self._here
        count = self.counts[group.name]
        self._here = Count()
        if report.skipped:
            here.why[report.longrepr[2].removeprefix("Skipped: ")] += 1
        elif not here.tried and not here.why:
            here.tried, here.survived = 1, int(report.passed)
        if report.failed:
            self._failed(report, here)
        count.tried += here.tried
        count.survived += here.survived
        count.why += here.why
        self._say(group, force=True)

    def _failed(self, report, here):
        """A case that fails after its judge returned casts doubt on all cases of its test."""
        if not self._judging:
            here.survived = 0
        text = str(report.longrepr)
        broken = [breach for name, breach in BREACHES.items() if name in text]
        self.breaches[(broken or ["misjudged"])[0]] += max(1, here.tried - here.survived)

    def _counted(self, group, judge):
        @functools.wraps(judge)
        def counted(*arguments, **options):
            self._judging = True
            self._here.tried += 1
            found = judge(*arguments, **options)
            self._judging = False
            if isinstance(found, Skip):
                self._here.tried -= 1
                self._here.why[found.why] += 1
            else:
                self._here.survived += 1
            self._say(group)
            return found

        return counted

    def _say(self, group, *, force=False):
        now = time.monotonic()
        if force or now - self._said > PROGRESS_S:
            self._said = now
            count = self.counts[group.name]
            print(f"{group.name}: {count.tried + self._here.tried} tried", file=self._progress, flush=True)
