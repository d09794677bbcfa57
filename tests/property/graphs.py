"""Deeds of engines that capture graphs, for random histories: whatever else happens, what a graph reads never moves.

A graph is kept as an engine keeps it: addresses, and what was read there when it was captured. It is compared after
every deed, without asking the daemon.
"""

from kvledger.wire.replies import TopologyRegistered, TopologyReport
from kvledger.wire.requests import (
    ChangeTopology,
    CloseRecapture,
    DropTopology,
    OpenRecapture,
    RegisterTopology,
    Topologies,
    TopologyPart,
)
from kvledgerd.core.commands import TopologyOrphaned

__all__ = ["GraphDeeds"]

Place = tuple[int, int]


class GraphDeeds:
    """What engines do with graphs; mixed into a history that has a world, users and leases."""

    graphs: dict[int, dict[Place, tuple[bytes, int]]]

    def capture(self) -> None:
        """Register a topology over what a lease handed out."""
        for index, part in self._parts():
            reply = self.users[index].ask(RegisterTopology([part]))
            if isinstance(reply, TopologyRegistered):
                number = reply.topology.topology
                self.graphs[number] = {}
                self._note(number)
                self.count("captured")

    def recapture(self) -> None:
        """Change a topology inside its window; outside of it that is refused."""
        for index, part in self._parts():
            user = self.users[index]
            for report in self.some(user.ok(Topologies()).topologies):
                change = ChangeTopology(report.topology, [part], [], whole=self.random.random() < 0.5)
                assert user.ask(change).code == "recapture"
                user.ok(OpenRecapture(report.topology))
                if isinstance(user.ask(change), TopologyReport):
                    self.count("recaptured")
                user.ok(CloseRecapture(report.topology))
                self._note(report.topology)

    def drop(self) -> None:
        """Drop a topology."""
        user = self.random.choice(self.users)
        for report in self.some(user.ok(Topologies()).topologies):
            user.ok(DropTopology(report.topology))
            del self.graphs[report.topology]

    def orphan(self) -> None:
        """All processes of a topology end."""
        for number in self.some(sorted(self.graphs)):
            self.world.do(TopologyOrphaned(number))
            del self.graphs[number]

    def rot(self) -> None:
        """Damage memory under a graph; to be followed by a restart, which finds it."""
        for number in self.some(sorted(self.graphs)):
            objects = self.world.state.topologies[number].objects.values()
            places = sorted((one.arena, one.offset) for one in objects if one.pool is None)
            if not places:
                continue
            place = self.random.choice(places)
            self.world.memory[place] = b"rotten"
            for graph in self.graphs.values():
                if place in graph:
                    graph[place] = (b"rotten", graph[place][1])
            self.count("rotten")

    def check_graphs(self) -> None:
        """Each graph reads what it read, and may know by the generations what is wrong with it."""
        assert self.graphs.keys() == self.world.state.topologies.keys()
        for number, graph in self.graphs.items():
            topology = self.world.state.topologies[number]
            lost = {(topology.objects[name].arena, topology.objects[name].offset) for name in topology.lost}
            for place, (data, generation) in graph.items():
                assert self.world.memory[place] == data
                assert (self.world.generations[place] == generation) or place in lost
                assert data != b"rotten" or place in lost

    def forget_graphs(self) -> None:
        """The memory is gone, and every topology with it that has nothing on a device."""
        state = self.world.state
        for number in [number for number in self.graphs if number not in state.topologies]:
            assert not any(place in state.device_pools for place, _ in self.graphs.pop(number))

    def _note(self, number: int) -> None:
        """Note what a graph reads now; what it read before and still reads is as it was."""
        world, before = self.world, self.graphs[number]
        objects = world.state.topologies[number].objects.values()
        now = {(o.arena, o.offset): (world.memory[o.arena, o.offset], o.generation) for o in objects}
        self.graphs[number] = {place: before.get(place, found) for place, found in now.items()}

    def _parts(self) -> list[tuple[int, TopologyPart]]:
        """A lease that is still held, as part of a topology; a list of one, or empty."""
        held = [(index, TopologyPart(answer.lease, mine, [])) for index, answer, mine, _ in self.leases]
        held += [(index, TopologyPart(answer.lease, 0, [])) for index, answer, _, _ in self.settled]
        return self.some([one for one in held if one[1].lease in self.world.state.leases])
