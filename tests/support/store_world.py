"""The real core over the real store, on a simulated disk or in a real directory, with cleaner and scrubber.

All of it runs in one thread.

An event counts as durable when it is recorded; a power cut may come before any call of the store and before any
decision, so that copies are lost whose event was never written, and events are kept whose files were not removed yet.
"""

from kvledger_storage.disk import DiskStore, TierError
from kvledgerd.core.commands import RecordsLost, Written
from kvledgerd.core.config import PAGE, CoreConfig
from kvledgerd.core.decision import DiskRead, DiskWrite, DropBlobs
from kvledgerd.loop.live_core import live_records
from kvledgerd.workers.cleaner import Cleaner
from kvledgerd.workers.disk_jobs import DiskJobs
from kvledgerd.workers.scrubber import Scrubber
from support.disk_faults import LOG_ID, UnsyncedIO
from support.disk_simulation import SimulatedDisk
from support.world import World

SEGMENT = 64 * PAGE


class _Arena:
    def __init__(self, memory, number):
        self.memory = memory
        self.number = number

    def view(self, offset, length):
        """Return the bytes of a slot; those that are read into it become the memory's."""
        found = self.memory.setdefault((self.number, offset), bytearray(length))
        if not isinstance(found, bytearray) or len(found) != length:
            found = self.memory[self.number, offset] = bytearray(found[:length].ljust(length, b"\0"))
        return memoryview(found)


class _Arenas:
    def __init__(self, world):
        self.world = world

    def __getitem__(self, number):
        return _Arena(self.world.memory, number)


class InlineUpkeep:
    """Upkeep without threads: everything happens at once."""

    def __init__(self, world):
        self.world = world
        self.unread = 0
        self.between = lambda: None  # what somebody else does between reading and taking over

    @property
    def store(self):
        """The store of this moment; a restart opens another."""
        return self.world.store

    async def read(self, number, offset, budget):
        """Read live records."""
        part = self.store.read_part(number, offset, budget)
        self.unread += part.unread
        return part

    async def write(self, act):
        """Write."""
        return act()

    async def lose(self, refs, found):
        """Tell the core of damage."""
        for why, places in refs.items():
            await self.ask(RecordsLost(tuple(places), why, found))

    async def ask(self, command):
        """Have a command decided, unless power is lost before."""
        self.between()
        self.world.device._step()
        return self.world.do(command)


class StoreWorld(World):
    """A world whose disk is a store on a simulated device.

    Attributes:
        device: The simulated disk.
        store: The store of this incarnation.
        upkeep: What cleaner and scrubber work with.
        refused: What the store said of writes that it did not take.
    """

    def __init__(self, config=None, *, segment_bytes=SEGMENT, quota_bytes=1 << 30, reserve=0, check=True, directory=""):
        self.device = SimulatedDisk()
        self.place = (directory or "store", UnsyncedIO() if directory else self.device)
        self.segment_bytes = segment_bytes
        self.quota_bytes = quota_bytes
        self.reserve = reserve
        self.refused = []
        self.wall = 1000.0
        self.upkeep = InlineUpkeep(self)
        self.open_store()
        super().__init__(config or CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20), check=check)

    def open_store(self):
        """Open the store as a start does."""
        sizes = {"segment_bytes": self.segment_bytes, "quota_bytes": self.quota_bytes}
        directory, io = self.place
        self.store = DiskStore.open(directory, LOG_ID, io=io, **sizes)
        self.jobs = DiskJobs(self.store, _Arenas(self), 1000, self.reserve)
        self.cleaner = Cleaner(self.upkeep)

    def run(self, effect):
        """Carry out one effect, those about the disk by the real store."""
        match effect:
            case DiskWrite():
                try:
                    self.do(self.jobs.write(effect))
                except TierError as error:
                    self.refused.append(error)
                    self.do(Written(effect.job, error=str(error)))
            case DiskRead():
                reading = self.jobs.reading(effect)
                (answer,) = [found for n in range(reading.parts) if (found := reading.read(n))]
                self.do(answer)
            case DropBlobs():
                self.jobs.drop(effect)
            case _:
                super().run(effect)

    def restart(self, *, arenas=False, boot=b"c" * 16, lost=0):
        """Start the next incarnation from the log and the disk; memory is gone unless it is said to be there."""
        super().restart(arenas=arenas, boot=boot, lost=lost)
        self.open_store()
        missing = self.store.adopt(live_records(self.state))
        if missing:
            self.do(RecordsLost(tuple(missing), "no file holds it at the start", "start"))
        self.store.unlink_dead()

    def power_cut(self, rng):
        """Lose power and start again."""
        self.device.power_cut(rng)
        self.restart()

    def tidy(self):
        """Clean what is worth cleaning."""
        drive(self.cleaner.tidy())

    def scrub(self, *, seconds=100):
        """Scrub a whole pass."""
        scrubber = Scrubber(
            self.upkeep,
            lambda: self.state.tier,
            bytes_per_second=1 << 20,
            seconds=seconds,
            wall=lambda: self.wall,
        )
        steps = 0
        while scrubber.due:
            drive(scrubber.step())
            steps += 1
        return steps


def drive(coroutine):
    """Run a coroutine that waits for nothing; return what it returns."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits for something")
