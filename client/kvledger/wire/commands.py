"""The table of commands: who may send what, what it answers, and how much is promised when it has answered.

One table is the source of dispatch in the daemon and of the list in docs/protocol.md (`scripts/protocol_table.py`
prints it), so that the two can not drift. Classes of acknowledgement: `session` ends with the incarnation, `written`
survives the death of the daemon, `durable` survives the death of the machine.
"""

from typing import Final, Literal, NamedTuple

from kvledger.wire import replies, requests
from kvledger.wire.replies import Reply
from kvledger.wire.requests import Request

__all__ = ["BY_TYPE", "COMMANDS", "Acknowledgement", "Command", "Right", "allows"]

Right = Literal["reader", "writer", "operator"]
Acknowledgement = Literal["session", "written", "durable"]

_ORDER: Final[tuple[Right, ...]] = ("reader", "writer", "operator")


class Command(NamedTuple):
    """One row.

    Attributes:
        request: Type of the request.
        name: Its tag on the wire, and its name in logs and metrics.
        right: The least right that may send it; each right includes the ones before it.
        acknowledgement: What the reply promises.
        replies: Types of the reply besides `Failed`, which every command may answer.
        since: Protocol version that brought it.
        sentence: What it does.
    """

    request: type[Request]
    name: str
    right: Right
    acknowledgement: Acknowledgement
    replies: tuple[type[Reply], ...]
    since: int
    sentence: str


def allows(held: Right, needed: Right) -> bool:
    """Tell whether who holds one right may do what needs another."""
    return _ORDER.index(held) >= _ORDER.index(needed)


def _row(
    request: type[Request],
    right: Right,
    acknowledgement: Acknowledgement,
    answers: type[Reply] | tuple[type[Reply], ...],
    sentence: str,
) -> Command:
    name = str(request.__struct_config__.tag)
    found = answers if isinstance(answers, tuple) else (answers,)
    return Command(request, name, right, acknowledgement, found, 1, sentence)


COMMANDS: Final = (
    _row(requests.Hello, "reader", "session", replies.Welcome, "Open a connection; nothing else may come first."),
    _row(requests.Register, "reader", "durable", replies.Registered, "Make a layout known and get its number."),
    _row(requests.Ring, "writer", "session", replies.Done, "Hand in the staging ring of this connection."),
    _row(
        requests.Acquire,
        "reader",
        "session",
        replies.Acquired,
        "Look a prompt up and lease what is usable, in one decision.",
    ),
    _row(requests.Settle, "reader", "session", replies.Done, "Keep one offer of a lease and give the others back."),
    _row(requests.Renew, "reader", "session", replies.Done, "Show that a lease is still wanted."),
    _row(requests.Release, "reader", "session", replies.Done, "Give a lease back."),
    _row(
        requests.Fingerprints,
        "reader",
        "session",
        replies.FingerprintList,
        "Ask for the committed fingerprints of what a lease covers.",
    ),
    _row(requests.Arenas, "reader", "session", replies.ArenaList, "Have descriptors of arenas sent again."),
    _row(requests.Reserve, "writer", "written", replies.Reserved, "Reserve what a unit lacks, lease what is there."),
    _row(requests.Join, "writer", "session", replies.Joined, "Take a ticket of a reservation of this engine."),
    _row(requests.Put, "writer", "session", replies.Done, "Copy ranges of the ring into reserved objects."),
    _row(
        requests.Commit,
        "writer",
        "written",
        (replies.Committed, replies.Waiting),
        "Commit tickets; with the last one the unit is published, all of it or nothing.",
    ),
    _row(requests.Abort, "writer", "session", replies.Done, "Give a reservation up."),
    _row(
        requests.Evict,
        "operator",
        "written",
        replies.Evicted,
        "Drop copies of one kind; durable where disk copies are dropped.",
    ),
    _row(
        requests.EvictMany,
        "operator",
        "written",
        replies.EvictedMany,
        "Drop copies of many objects of one kind; durable where disk copies are dropped.",
    ),
    _row(requests.Quotas, "reader", "session", replies.QuotaList, "Tell how much memory each kind is sure of."),
    _row(
        requests.SetQuota,
        "operator",
        "durable",
        replies.QuotaList,
        "Fix what one kind is sure of, or leave it to the load again.",
    ),
    _row(requests.SetScrub, "operator", "durable", replies.Done, "Pause the scrubber, let it go on, or start a pass."),
    _row(requests.Offload, "writer", "durable", replies.Offloaded, "Write a boundary and its needs to disk."),
    _row(
        requests.Restore,
        "reader",
        "written",
        (replies.Restored, replies.Pending),
        "Bring a boundary back into memory, verified.",
    ),
    _row(
        requests.Warm,
        "operator",
        "session",
        replies.Warming,
        "Bring prefixes back from disk ahead of need, hottest first.",
    ),
    _row(
        requests.RegisterPool,
        "writer",
        "written",
        replies.PoolRegistered,
        "Set pages on a device aside for this engine's objects.",
    ),
    _row(requests.DropPool, "writer", "written", replies.Done, "Take a device pool back."),
    _row(requests.AskPages, "writer", "written", replies.PagesGiven, "Ask for pages of a device pool, to be filled."),
    _row(
        requests.ReportFilled,
        "writer",
        "written",
        replies.Committed,
        "Say that asked pages are filled: verdicts to this engine name them.",
    ),
    _row(requests.GivePagesUp, "writer", "session", replies.Done, "Give asked pages back unfilled."),
    _row(
        requests.FreePages, "writer", "written", replies.Evicted, "Free copies in a device pool along a settled prefix."
    ),
    _row(requests.Describe, "reader", "session", replies.Described, "List what is stored along a path."),
    _row(
        requests.RegisterTopology,
        "reader",
        "durable",
        (replies.TopologyRegistered, replies.NotResident),
        "Pin what a captured graph reads in place.",
    ),
    _row(requests.OpenRecapture, "reader", "durable", replies.Done, "Open a topology's recapture window."),
    _row(
        requests.ChangeTopology,
        "reader",
        "durable",
        (replies.TopologyReport, replies.NotResident),
        "Change what a topology pins, inside its recapture window.",
    ),
    _row(requests.CloseRecapture, "reader", "durable", replies.TopologyReport, "Close a topology's recapture window."),
    _row(requests.DropTopology, "reader", "durable", replies.Done, "End a topology."),
    _row(requests.Topologies, "reader", "session", replies.TopologyList, "List the topologies of this engine."),
    _row(requests.Epochs, "reader", "session", replies.EpochList, "List the epochs: models with their weights."),
    _row(
        requests.SetEpoch,
        "operator",
        "durable",
        replies.EpochSet,
        "Change what an epoch is, or retire a kernel ABI in it.",
    ),
    _row(requests.Tenants, "operator", "session", replies.TenantList, "Tell what each tenant has."),
    _row(requests.Status, "reader", "session", replies.StatusReport, "Tell the daemon's state in numbers."),
)
"""All commands, in the order of the documentation."""

BY_TYPE: Final = {command.request: command for command in COMMANDS}
