"""Settings that are right one by one and contradict each other: refused at the start, with what to change.

A daemon that began with them would fail its users one by one instead: the tenant that comes last finds no memory, a
rule that an earlier one hides protects nobody.
"""

import difflib
from collections import Counter
from typing import TYPE_CHECKING

from kvledger.errors import CallerError
from kvledgerd.core.config import DRILL_TENANT, CoreConfig
from kvledgerd.core.placement.sureness import MEMORY_KINDS, usual_bytes

if TYPE_CHECKING:
    from kvledgerd.settings.table import Config

__all__ = ["ConfigError", "check_access", "check_capacity"]


class ConfigError(CallerError):
    """A setting is unknown, of the wrong type or out of bounds, or two of them contradict each other."""

    code = "config"


def check_capacity(config: "Config", core: CoreConfig) -> None:
    """Refuse memory in which not every tenant is sure of one arena of each kind."""
    arena, kinds, tenants = usual_bytes(core), len(MEMORY_KINDS), core.tenants
    least = kinds * arena
    if config.tenant_bytes and config.tenant_bytes < least:
        raise ConfigError(
            f"{kinds} kinds with an arena of {arena} bytes each do not fit into {config.tenant_bytes} bytes",
            field="tenant_bytes",
            remedy=f"give a tenant {least} bytes or more, or arenas of {config.tenant_bytes // kinds} bytes or less",
        )
    if tenants * least > config.memory_bytes:
        raise ConfigError(
            f"{tenants} tenants with {kinds} kinds and an arena of {arena} bytes for each need "
            f"{tenants * least} bytes, there are {config.memory_bytes}",
            field="memory_bytes",
            remedy=f"set memory_bytes to {tenants * kinds * config.arena_bytes} or more, arena_bytes to "
            f"{config.memory_bytes // (tenants * kinds)} or less, or tenants to {config.memory_bytes // least} or less",
        )


def check_access(config: "Config") -> None:
    """Refuse sockets that are named twice or that nobody is let in at, and rules that can not hold."""
    names = [one.name for one in config.listening]
    for what, found in (("name", names), ("path", [str(one.path) for one in config.listening])):
        twice = next((value for value, count in Counter(found).items() if count > 1), None)
        if twice is not None:
            wrong, remedy = f"two sockets have the {what} {twice}", f"give each its own {what}"
            raise ConfigError(wrong, field="sockets", remedy=remedy)
    if config.sockets and not config.access:
        raise ConfigError(
            "there are several sockets, and no rule says who is behind which",
            field="access",
            remedy=f'add a rule for each, such as {{tenant = "a", right = "writer", socket = "{names[1]}"}}',
        )
    for number, rule in enumerate(config.access, 1):
        if rule.tenant == DRILL_TENANT:
            wrong = f"rule {number} gives the daemon's own tenant away"
            raise ConfigError(wrong, field="access", remedy="call the tenant something else")
        if rule.socket and rule.socket not in names:
            near = difflib.get_close_matches(rule.socket, names, 1)
            remedy = f"did you mean {near[0]}?" if near else f"the sockets are {', '.join(names)}"
            wrong = f"rule {number} names a socket {rule.socket}, there is none"
            raise ConfigError(wrong, field="access", remedy=remedy)
        hiding = next((n for n, earlier in enumerate(config.access[: number - 1], 1) if earlier.covers(rule)), None)
        if hiding is not None:
            raise ConfigError(
                f"rule {number} never counts: rule {hiding} matches whoever it matches, and the first counts",
                field="access",
                remedy=f"move it before rule {hiding}, or remove it",
            )
