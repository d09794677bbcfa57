"""The lossy tier through the tensor worker: the same bytes, from a real process and where that fails."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest

from kvledger.arena_header import ArenaIdentity
from kvledger.errors import ServiceError
from kvledger.kinds import Kind
from kvledger_storage.arena import Arena
from kvledgerd.core.copies.precisions import Precision
from kvledgerd.core.decision import Quantised
from kvledgerd.memory.arenas import ArenaTable
from kvledgerd.tenants import tenant_digest
from kvledgerd.tensor_device import TensorDevice
from kvledgerd.tensors.worker import TensorWorker
from kvledgerd.workers.lossy import Lossy

PAGES, PAGE, VALUES = 5, 8_192, 4_032
SLOT, OTHER = (1, 4_096, PAGES * PAGE), (1, 65_536, PAGES * PAGE)


@pytest.fixture(scope="module")
def arenas():
    """Give a table with one arena."""
    made = ArenaTable()
    identity = ArenaIdentity(bytes(16), bytes(16), 1, tenant_digest("default"), Kind.COMPRESSED_KV)
    arena = Arena.create(identity, 1 << 20)
    made.add(arena)
    yield made
    os.close(made.readable(1))
    arena.close()


@pytest.fixture(scope="module")
def worker(arenas):
    """Give a worker with a process of its own on the CPU, whose start takes longer than all that it does here."""
    lock = os.open(os.devnull, os.O_RDONLY)
    made = TensorWorker(
        TensorDevice("cpu"), arenas, SimpleNamespace(log_id=bytes(16), boot_id=bytes(16), lock_fd=lock), 120
    )
    yield made
    made.close()
    os.close(lock)


def fill(arenas) -> None:
    """Put noise into a slot."""
    noise = np.random.default_rng(1).integers(0, 1 << 16, PAGES * PAGE // 2, dtype=np.uint16)
    arenas[1].view(*SLOT[1:])[:] = noise.tobytes()


def jobs(worker) -> list[int]:
    """Return how many jobs of each direction a worker has done."""
    counters = worker.counters()
    return [counters["tensor_quantise_jobs"], counters["tensor_dequantise_jobs"]]


@pytest.mark.parametrize("form", [Precision.E4M3, Precision.INT8])
def test_the_process_makes_the_bytes_that_a_thread_makes(arenas, worker, form):
    """Records and objects are the same, wherever the arithmetic was done; the process writes into the slot itself."""
    how = Quantised(form, PAGES * VALUES + PAGES * VALUES // 64, PAGE, VALUES)
    fill(arenas)
    before = jobs(worker)
    here, there = Lossy(arenas, None), Lossy(arenas, worker)
    record = here.quantised(SLOT, how)
    assert there.quantised(SLOT, how) == record

    here.dequantise_into(record, SLOT, how)
    there.dequantise_into(record, OTHER, how)
    assert arenas[1].view(*OTHER[1:]) == arenas[1].view(*SLOT[1:])
    assert [now - then for now, then in zip(jobs(worker), before, strict=True)] == [1, 1]


def test_without_the_worker_the_bytes_are_made_here(arenas):
    """A worker that fails costs time and no record: the thread that asked does the work."""

    class Broken:
        def run(self, job):
            raise ServiceError("gone")

    how = Quantised(Precision.E4M3, PAGES * VALUES + PAGES * VALUES // 64, PAGE, VALUES)
    fill(arenas)
    broken = Lossy(arenas, Broken())
    record = Lossy(arenas, None).quantised(SLOT, how)
    assert broken.quantised(SLOT, how) == record

    broken.dequantise_into(record, OTHER, how)
    Lossy(arenas, None).dequantise_into(record, SLOT, how)
    assert arenas[1].view(*OTHER[1:]) == arenas[1].view(*SLOT[1:])
