"""Rules of access: what matches, what a list of them means, and which lists are refused."""

from __future__ import annotations

import pytest

from kvledgerd.access import Access, AccessRule, AccessRules
from kvledgerd.server.peer import Peer
from kvledgerd.settings.loading import ConfigError, core_config, load, render

RED, ALL = Access("red", "reader"), Access("default", "operator")


def rule(right="reader", tenant="red", **asked) -> AccessRule:
    """Return a rule."""
    return AccessRule(tenant, right, **asked)


@pytest.mark.parametrize(
    ("asked", "socket", "peer", "matches"),
    [
        ({}, "any", Peer(1, 5, 5), True),
        ({"socket": "a"}, "a", Peer(1, 5, 5), True),
        ({"socket": "a"}, "b", Peer(1, 5, 5), False),
        ({"uid": 5}, "a", Peer(1, 5, 9), True),
        ({"uid": (4, 6)}, "a", Peer(1, 5, 9), False),
        ({"uid": 0}, "a", Peer(1, 5, 0), False),
        ({"gid": 9}, "a", Peer(1, 5, 9), True),
        ({"gid": (7, 9)}, "a", Peer(1, 5, 1, (2, 7)), True),
        ({"gid": 9}, "a", Peer(1, 9, 1, (2, 7)), False),
        ({"uid": 5, "gid": 9}, "a", Peer(1, 5, 1), False),
    ],
)
def test_a_rule_matches_who_is_all_that_it_names(asked, socket, peer, matches):
    """Socket, uid and a group, the peer's own or a further one; what is not named is not asked about."""
    assert AccessRules([rule(**asked)]).of(socket, peer) == (RED if matches else None)


def test_the_first_match_counts_and_none_is_nobody():
    """Of overlapping rules the first one holds, whichever gives more; whom none names is let in nowhere."""
    rules = AccessRules([rule(uid=5), rule("operator", gid=9), rule("writer", uid=6)])
    assert rules.of("a", Peer(1, 5, 9)).right == "reader"
    assert rules.of("a", Peer(1, 6, 9)).right == "operator"
    assert rules.of("a", Peer(1, 6, 1)).right == "writer"
    assert rules.of("a", Peer(1, 7, 1)) is None
    assert AccessRules().of("a", Peer(1, 7, 1)) == ALL


HIDDEN = {
    "the same": ({"uid": 5}, {"uid": 5}, True),
    "one of several": ({"uid": (5, 6)}, {"uid": 6}, True),
    "all uids": ({"socket": "a"}, {"socket": "a", "uid": 6}, True),
    "all sockets": ({"gid": 5}, {"gid": 5, "socket": "a"}, True),
    "some more": ({"uid": 5}, {"uid": (5, 6)}, False),
    "another socket": ({"socket": "a"}, {"uid": 6}, False),
    "uid beside gid": ({"uid": 5, "gid": 1}, {"uid": 5}, False),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_rule_that_is_hidden_is_known(name):
    """A rule is hidden by an earlier one if whoever it matches is matched by that one."""
    earlier, later, hidden = HIDDEN[name]
    assert rule(**earlier).covers(rule("writer", **later)) is hidden


SOCKETS = 'sockets = [{name = "red", path = "/run/red.sock"}]\n'
WRONG = {
    "socket without rule": (SOCKETS, "access", "no rule says who is behind which"),
    "unknown socket": (
        SOCKETS + 'access = [{tenant = "r", right = "reader", socket = "rod"}]',
        "access",
        "did you mean red?",
    ),
    "hidden rule": (
        'access = [{tenant = "r", right = "reader"}, {tenant = "r", right = "writer", uid = 5}]',
        "access",
        "rule 2 never counts: rule 1 matches",
    ),
    "unknown right": (
        'access = [{tenant = "r", right = "root"}]',
        "access",
        "a right is reader, writer, operator: Invalid enum value 'root'",
    ),
    "unknown key": ('access = [{tenant = "r", right = "reader", user = 5}]', "access", "unknown field `user`"),
    "uid below 0": ('access = [{tenant = "r", right = "reader", uid = -1}]', "access", ">= 0"),
    "no uid at all": ('access = [{tenant = "r", right = "reader", uid = []}]', "access", "length >= 1"),
    "name of a tenant": ('access = [{tenant = "a/b", right = "reader"}]', "access", "$.tenant"),
    "the drill": ('access = [{tenant = "kvledger.drill", right = "reader"}]', "access", "the daemon's own tenant"),
    "no list": ('access = "red"', "access", "a list of tables with tenant, right, socket, uid, gid"),
    "no tables": ("access = [5]", "access", "a list of tables"),
    "relative path": ('sockets = [{name = "red", path = "red.sock"}]', "sockets", "the path written from the root"),
    "mode without zero": ('sockets = [{name = "red", path = "/r", mode = "660"}]', "sockets", "$.mode"),
    "one name twice": (
        'sockets = [{name = "kvledger.socket", path = "/run/red.sock"}]',
        "sockets",
        "two sockets have the name kvledger.socket",
    ),
    "one path twice": ('sockets = [{name = "r", path = "/run/kvledger/kvledger.sock"}]', "sockets", "have the path"),
    "too many tenants": (
        "access = [" + ", ".join(f'{{tenant = "t{n}", right = "reader", uid = {n}}}' for n in range(5)) + "]",
        "memory_bytes",
        "5 tenants with 4 kinds",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_are_refused_with_a_remedy(tmp_path, name):
    """What is misspelled, contradicts itself or could never hold keeps the daemon from starting, with a remedy."""
    text, field, says = WRONG[name]
    file = tmp_path / "k.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert (caught.value.field, bool(caught.value.remedy)) == (field, True)
    assert says in str(caught.value)


def test_wrong_rules_are_told_as_they_were_written(tmp_path):
    """The message about a rule has its list as the file has it, so that a reader finds it there."""
    rules = '[{tenant = "r", right = "root", uid = [1, 2]}, {tenant = "é", right = "reader"}]'
    (tmp_path / "k.toml").write_text(f"access = {rules}\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "k.toml", {})
    assert str(caught.value).startswith(f"access: {rules} (in ")


def test_rules_are_printed_as_they_are_read(tmp_path):
    """Both lists come back the same from the printed settings, and the environment takes them in the same words."""
    text = (
        '[[sockets]]\nname = "red"\npath = "/run/a \\"b\\".sock"\nmode = "0600"\n'
        '[[access]]\ntenant = "red"\nright = "writer"\nsocket = "red"\nuid = [1, 2]\ngid = 7\n'
        '[[access]]\ntenant = "blue"\nright = "operator"\nuid = 0\n'
    )
    (tmp_path / "k.toml").write_text(text)
    config = load(tmp_path / "k.toml", {})
    core = core_config(config)
    parts = (core.tenants, core.tenant_bytes, core.disk_tenant_bytes, core.tenant_entries)
    assert parts == (2, 1 << 29, core.disk_bytes // 2, 1 << 22)
    assert core.topology_tenant_bytes == core.topology_bytes // 2
    (tmp_path / "again.toml").write_text(render(config))
    assert load(tmp_path / "again.toml", {}) == config
    words = {"KVLEDGER_ACCESS": str(config.access), "KVLEDGER_SOCKETS": str(config.sockets)}
    assert load(None, words) == config
