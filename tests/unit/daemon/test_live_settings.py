"""Settings that change while the daemon runs: each reaches whoever goes by it."""

import asyncio
from types import SimpleNamespace

import pytest

from kvledgerd.access import AccessRules, Sockets
from kvledgerd.keeper.listener import SOCKET_NAME
from kvledgerd.life import reloading
from kvledgerd.life.live_settings import LIVE, tell, with_live
from kvledgerd.settings.table import SETTINGS, Config
from support.shell import until

ELSEWHERE = {"silence_seconds", "snapshot_events", "stop_seconds", "stop_write_seconds"}
"""What the daemon itself looks up when it needs it."""


class Noted(SimpleNamespace):
    """A part of a daemon: what it is told, and whether it was woken."""

    def wake(self):
        """Note that it was woken."""
        self.woken = True

    def every(self, seconds):
        """Note how often it is to pass."""
        self.seconds = seconds

    def change(self, rules, sockets):
        """Note the rules and for which sockets they are; two connections end by them."""
        self.rules, self.sockets = rules, sockets
        return 2


def other(name):
    """Return a value of a setting that is not its default."""
    row = SETTINGS[name]
    if name == "access":
        return AccessRules.parse([{"tenant": "a", "right": "reader"}])
    return row.default + 1 if row.default < row.high else row.default - 1


def test_only_these_are_taken():
    """Of settings that were read again those that may change are taken, and all others stay."""
    found = Config(**{name: other(name) for name in LIVE}, max_objects=9)
    taken = with_live(Config(), found)
    assert {name for name in SETTINGS if getattr(taken, name) != SETTINGS[name].default} == set(LIVE)


def test_of_sockets_those_stay_that_are_still_named():
    """A row that was taken out is taken, since rules count beside their sockets; a new one waits for the next start."""
    rows = [{"name": name, "path": f"/run/{name}"} for name in ("red", "blue", "green")]
    taken = with_live(Config(sockets=Sockets.parse(rows[:2])), Config(sockets=Sockets.parse(rows[1:])))
    assert [where.name for where in taken.listening] == [SOCKET_NAME, "blue"]


def test_each_of_them_reaches_somebody():
    """Every value is handed to a part that goes by it, but for those that the daemon looks up itself."""
    config = with_live(Config(), Config(**{name: other(name) for name in LIVE}))
    names = ("retention", "scrubber", "warmer", "breaker", "drill", "server")
    parts = SimpleNamespace(**{name: Noted() for name in names})
    assert tell(parts, config) == 2
    told = [value for part in vars(parts).values() for value in vars(part).values()]
    assert parts.retention.woken
    assert [name for name in LIVE if getattr(config, name) not in told and name not in ELSEWHERE] == []


@pytest.mark.asyncio
@pytest.mark.parametrize(("holding", "says"), [("ab", "held by b"), ("a", ""), ("", "")])
async def test_rules_name_no_tenant_whose_memory_another_holds(monkeypatch, holding, says):
    """Who comes in the place of a tenant that left finds memory, or the rules are refused with the remedy."""
    before, after = (
        AccessRules.parse([{"tenant": name, "right": "writer", "uid": uid} for uid, name in enumerate(names)])
        for names in ("ab", "ac")
    )
    taken, said = [], []
    log = SimpleNamespace(info=lambda _, **more: said.append(""), error=lambda _, why: said.append(why))
    monkeypatch.setattr(reloading, "_log", log)
    made = reloading.Reloading(Config(access=before), lambda: Config(access=after), taken.append, lambda: holding)
    running = asyncio.create_task(made.run())
    made.wake()
    await until(lambda: bool(said))
    running.cancel()
    assert (bool(taken), says in said[0]) == (not says, True)
