"""What the core admits to disk finds its place in the files, however much of them is dead."""

import random

import pytest
from msgspec.structs import replace

from kvledger.kinds import Kind
from kvledger.wire.replies import Failed, Offloaded
from kvledger.wire.requests import Evict, Offload
from kvledger_storage.disk.errors import QuotaExceededError
from kvledgerd.core.decision import DiskWrite
from kvledgerd.settings.disk_sizes import cleaning_reserve, disk_segment_bytes
from kvledgerd.settings.loading import core_config
from kvledgerd.settings.table import Config
from support.layouts import pick
from support.store_world import StoreWorld, drive

END = 512
LETTERS = "CM"
PROMPTS = 40


class Cleaning(StoreWorld):
    """A world in which a write that finds no room is tried again when the cleaner has made some, as a daemon does."""

    def run(self, effect):
        """Carry out one effect."""
        if not isinstance(effect, DiskWrite):
            return super().run(effect)
        try:
            answer = self.jobs.write(effect)
        except QuotaExceededError as error:
            drive(self.cleaner.make_room(error.needed + self.reserve))
            return super().run(effect)
        return self.do(answer)


@pytest.mark.parametrize("mebibytes", [1, 3])
def test_no_write_that_the_core_admitted_is_refused_for_want_of_room(mebibytes):
    """Prompts come and go at the cap, which leaves holes in every file: the core refuses some, the store none."""
    config = Config(disk_bytes=mebibytes << 20)
    core = replace(core_config(config), memory_bytes=64 << 20, arena_bytes=1 << 20)
    sizes = {"segment_bytes": disk_segment_bytes(config), "quota_bytes": config.disk_bytes}
    world = Cleaning(core, **sizes, reserve=cleaning_reserve(config), check=False)
    chance, user, kept, refused = random.Random(mebibytes), world.engine(), [], 0
    layout = user.register(pick(LETTERS))
    for turn in range(mebibytes * 150):
        number = turn % (mebibytes * PROMPTS)
        tokens = [number * 1000 + token for token in range(END)]
        user.store(layout, tokens, END)
        at = user.boundary(layout, tokens, END)
        reply = user.ask(Offload(layout, at, drop_memory=True))
        assert world.refused == []
        assert world.store.file_bytes <= config.disk_bytes
        if isinstance(reply, Offloaded):
            kept.append(at)
            continue
        assert isinstance(reply, Failed)
        refused += 1
        going = kept.pop(chance.randrange(len(kept)))
        user.ask(Evict(Kind.DISK_PREFIX, layout, going))
        for kind in (Kind.COMPRESSED_KV, Kind.UNCOMPRESSED_TAIL):
            user.ask(Evict(kind, layout, going, disk=True))
    assert refused > 10
    assert world.state.disk_bytes > core.disk_bytes * 8 // 10
