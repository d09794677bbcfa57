"""Scripts: commands with what the core says to each beneath, rewritten by one flag and reviewed as diffs.

A line is a command, ``#`` starts a comment, and indented lines are the expected output of the command above them:
events, effects with their class, the reply, and the counters that changed. Commands:

===================================  ===================================================================================
``room N``                           memory for N objects of rows; the first command, if any
``engine NAME``                      an engine joins; later commands start with its name
``layout NAME LETTERS field=value``  a layout of groups C, X, S, T, M with 32-token blocks, registered by every engine;
                                     ``ranks=N`` cuts every group into shards for N ranks
``NAME beside ENGINE``               another connection of an engine, such as a rank's
``NAME join ENGINE R``               it takes rank R's ticket of the engine's last unit
``NAME hangs up``                    the connection ends, the engine lives on
``NAME reserve LAYOUT PROMPT END``   reserve a unit with a boundary at END tokens of a prompt (a, b, ...)
``NAME put [-GROUP] [seed=N]``       hand in all bytes of its last unit, or of all groups but one, or with ``rank=R`` of
                                     one rank
``NAME commit|abort [NAME]``         end its last unit, or another engine's
``NAME acquire LAYOUT PROMPT END``   look up the first END tokens of a prompt; fields as ``restore=0``
``NAME release [NAME]``              give its last lease back, or another engine's
``NAME evict LAYOUT PROMPT END GROUP``, ``NAME offload|restore LAYOUT PROMPT END``
``NAME capture``                     register a topology over its last lease
``NAME open|replace|close|drop``     its recapture window; pin its last lease instead; the topology ends
``NAME epoch STATE WEIGHTS share=N``   an operator changes what some weights of the model are
``NAME gone|silent|heard``           its process ended, or was not heard for long, or is heard again
``NAME processes ended``             the last process of its topology ended
``hold``, ``let go``                 answers of jobs are kept back, and come
``damage N``                         the N-th record on disk loses its bytes
``spoil N``                          the N-th object in memory loses its bytes
``restart [without arenas]``         the daemon is killed and starts again
===================================  ===================================================================================

Numbers that an incarnation hands out are printed as ``incarnation.number``.
"""

from pathlib import Path

import msgspec

from kvledger.epochs import EpochState
from kvledger.kinds import Kind
from kvledger.layout import Layout
from kvledger.wire.replies import Acquired, Failed, Reserved, TopologyRegistered
from kvledger.wire.requests import (
    Abort,
    Acquire,
    ChangeTopology,
    CloseRecapture,
    Commit,
    DropTopology,
    Evict,
    Join,
    Offload,
    OpenRecapture,
    RegisterTopology,
    Release,
    Reserve,
    Restore,
    SetEpoch,
    TopologyPart,
)
from kvledger_storage import events
from kvledger_storage.blob_ref import BlobRef
from kvledgerd.core.commands import EngineSilent, TopologyOrphaned
from kvledgerd.core.config import PAGE, CoreConfig
from kvledgerd.core.incarnation.decide_life import SERIAL_STEP
from support.layouts import compressed, indexer, recurrent, tail, window
from support.world import User, World, layout

__all__ = ["Teller", "run", "strip"]

BLOCK = 32

SWITCHES = {"restore", "replay", "approx"}
"""What a look-up says with yes or no; in a script 1 or 0."""


def strip(text: str) -> str:
    """Return a script without its expected output."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("    ")) + "\n"


def run(text: str) -> str:
    """Carry a script out and return it with its output."""
    teller, out = Teller(), []
    for line in strip(text).splitlines():
        out.append(line)
        command = line.partition("#")[0].split()
        if command:
            out += [f"    {said}" for said in teller.tell(command)]
    return "\n".join(out) + "\n"


class _Recorder(World):
    """A world that notes the effects it is told to carry out."""

    def __init__(self, rows: int = 256) -> None:
        self.effects: list[str] = []
        caps = {Kind.COMPRESSED_KV: rows * PAGE}
        super().__init__(CoreConfig(memory_bytes=1024 * PAGE, arena_bytes=32 * PAGE, kind_bytes=caps))

    def note(self, decision) -> None:
        """Note the effects of a decision with the class that each waits for."""
        for ack, effect in decision.effects:
            self.effects.append(f"effect {ack.name.lower()} {_say(effect)}")


class Teller:
    """Carries out commands and says what came of each."""

    def __init__(self) -> None:
        self.world = _Recorder()
        self.users: dict[str, User] = {}
        self.layouts: dict[str, int] = {}
        self.units: dict[str, Reserved] = {}
        self.leases: dict[str, int] = {}
        self.topologies: dict[str, int] = {}

    def tell(self, command: list[str]) -> list[str]:
        """Carry one command out.

        Args:
            command: Its words.

        Returns:
            What it printed: events, effects, reply, and what changed.
        """
        world = self.world
        before, begin = self._counts(), len(world.log)
        world.effects.clear()
        reply = self._do(command)
        said = [f"event {_say(events.decode(raw).event)}" for raw in world.log[begin:]]
        said += world.effects
        if reply is not None:
            said.append(f"reply {_say(reply)}")
        changed = {k: v for k, v in self._counts().items() if v != before[k]}
        return said + [f"now {' '.join(f'{k}={v}' for k, v in changed.items())}"] * bool(changed)

    def _counts(self) -> dict[str, int]:
        state = self.world.state
        pools = state.pools.values()
        return {
            "objects": state.objects,
            "leases": len(state.leases),
            "topologies": len(state.topologies),
            "units": len(state.units),
            "jobs": len(state.jobs),
            "pinned": sum(bool(c.pins) for c in state.cells.values()),
            "unverified": sum(c.unverified.bit_count() for c in state.cells.values()),
            "memory_pages": sum(p.live_bytes for p in pools) // PAGE,
            "disk_pages": state.disk_bytes // PAGE,
        }

    def _do(self, command: list[str]):
        match command:
            case ["room", rows]:
                self.world = _Recorder(int(rows))
            case ["engine", name]:
                self.users[name] = self.world.engine(name)
            case ["layout", name, letters, *fields]:
                self._layout(name, letters, dict(f.split("=") for f in fields))
            case ["hold"]:
                self.world.held = []
            case ["let", "go"]:
                self.world.release_effects()
            case [("damage" | "spoil"), number]:
                bytes_of = self.world.disk if command[0] == "damage" else self.world.memory
                bytes_of[sorted(bytes_of)[int(number)]] = b"?"
            case ["restart", *how]:
                self.world.restart(arenas=not how)
            case [name, ("beside" | "join" | "hangs"), *rest]:
                return self._rank(name, command[1], *rest)
            case [name, verb, *rest]:
                return self._ask(name, verb, rest)
        return None

    def _layout(self, name: str, letters: str, fields: dict[str, str]) -> None:
        groups = {"C": compressed("C", BLOCK), "X": indexer("X", BLOCK), "S": window("S", 16, 32)}
        groups |= {"T": tail("T", 4, 8), "M": recurrent(coupled_to="C", halo_rows=4)}
        shards = int(fields.get("ranks", 1))
        cut = (msgspec.structs.replace(groups[letter], shards=shards) for letter in letters)
        what = layout(*cut, block_tokens=BLOCK, **fields)
        for user in self.users.values():
            self.layouts[name] = user.register(what)

    def _rank(self, name: str, verb: str, whose: str, rank: str = ""):
        if verb == "beside":
            self.users[name] = self.users[whose].beside()
        elif verb == "hangs":
            self.users[name].hang_up("process ended")
        else:
            self.units[name] = self.units[whose]
            return self.users[name].ask(Join(self.units[whose].unit, int(rank)))
        return None

    def _ask(self, name: str, verb: str, rest: list[str]):
        user = self.users[name]
        match verb, rest:
            case "gone", []:
                user.leave("killed")
            case (("silent" | "heard"), []):
                self.world.do(EngineSilent(user.caller.engine, verb == "silent"))
            case "put", options:
                skip = [o[1:] for o in options if o[0] == "-"]
                user.fill(self.units[name], skip, **{k: int(v) for k, _, v in (o.partition("=") for o in options) if v})
            case (("commit" | "abort"), whose):
                unit = self.units[(whose or [name])[0]].unit
                return user.ask(Commit(unit) if verb == "commit" else Abort(unit))
            case "epoch", [state, weights, *share]:
                return user.ask(SetEpoch("test", weights, EpochState(state), sum(int(one[6:]) for one in share)))
            case "release", whose:
                return user.ask(Release(self.leases[(whose or [name])[0]]))
            case (("capture" | "open" | "replace" | "close" | "drop"), []):
                return self._graph(name, verb)
            case "processes", ["ended"]:
                self.world.do(TopologyOrphaned(self.topologies[name]))
            case _, [what, prompt, end, *more]:
                return self._at(name, verb, self.layouts[what], _tokens(prompt), int(end), more)
        return None

    def _graph(self, name: str, verb: str):
        number, parts = self.topologies.get(name, 0), [TopologyPart(self.leases[name], 0, [])]
        asked = {
            "capture": RegisterTopology(parts),
            "open": OpenRecapture(number),
            "replace": ChangeTopology(number, parts, [], whole=True),
            "close": CloseRecapture(number),
            "drop": DropTopology(number),
        }
        reply = self.users[name].ask(asked[verb])
        if isinstance(reply, TopologyRegistered):
            self.topologies[name] = reply.topology.topology
        return reply

    def _at(self, name: str, verb: str, number: int, tokens: list[int], end: int, more: list[str]):
        user = self.users[name]
        at = user.boundary(number, tokens, end)
        if verb == "acquire":
            fields = {k: int(v) if k not in SWITCHES else v == "1" for k, v in (f.split("=") for f in more)}
            reply = user.ask(Acquire(number, end, at.hashes, **fields))
            if isinstance(reply, Acquired):
                self.leases[name] = reply.lease
            return reply
        if verb == "evict":
            kind = self.world.state.layouts[number].layout.group(more[0]).kind
            return user.ask(Evict(kind, number, at, more[0]))
        reply = user.ask({"reserve": Reserve, "offload": Offload, "restore": Restore}[verb](number, at))
        if isinstance(reply, Reserved):
            self.units[name] = reply
        return reply


def _tokens(prompt: str) -> list[int]:
    """Prompts are letters; no two of them share a token."""
    return [1000 * ord(prompt) + t for t in range(8 * BLOCK)]


def _say(what) -> str:
    """One line for people: the name, and the fields that are neither empty nor a hash."""
    if isinstance(what, Failed):
        return f"{what.code}: {what.field}: {what.message}"
    name = type(what).__name__
    names = what._fields if isinstance(what, BlobRef) else what.__struct_fields__
    fields = [f"{k}={_value(getattr(what, k))}" for k in names if _shown(getattr(what, k))]
    return " ".join([name, *fields])


def _shown(value) -> bool:
    return value not in ("", b"", 0, [], (), None, False)


def _value(value) -> str:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, int) and value >= SERIAL_STEP:
        return f"{value // SERIAL_STEP}.{value % SERIAL_STEP}"
    if isinstance(value, msgspec.Struct | BlobRef):
        return _part(value)
    if isinstance(value, list | tuple) and value and isinstance(value[0], msgspec.Struct | BlobRef):
        return "[" + "; ".join(_part(v) for v in value) + "]"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(_value(v) for v in value) + ")"
    return getattr(value, "name", str(value))


def _part(value: msgspec.Struct | BlobRef) -> str:
    if type(value).__name__ == "Cut":
        return str(value)
    if isinstance(value, Layout):
        return f"{value.model} of {', '.join(f'{g.name}={g.kind.name}' for g in value.groups)}"
    if type(value).__name__ == "HandleRun":
        return f"{value.group}/{value.shard}@{value.first_token}x{value.count} arena {value.arena}+{value.offset}"
    return _say(value).partition(" ")[2]


def scripts(folder: Path) -> list[Path]:
    """Return all scripts of a folder, by name."""
    return sorted(folder.glob("*.txt"))
