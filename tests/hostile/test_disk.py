"""Files of disk records that somebody changed under a running daemon: a miss of what they held, and of nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from kvledger import Cache, Kind
from kvledger.errors import LeaseLost, NotFoundError
from kvledger.testing import Daemon
from kvledger_storage.disk.record import looks_like_header
from support.neighbour import TOKENS, Neighbour
from support.replaced_files import REPLACEMENTS
from support.service_manager import Manager
from support.tiny import check, prompt, store, tiny_layout

PAGE = 4096
VICTIM, OTHER = 501, 502
KINDS = (Kind.UNCOMPRESSED_TAIL, Kind.COMPRESSED_KV)


@pytest.fixture(scope="module")
def running():
    """Give a neighbour on a daemon that never stops restoring, however many records were found damaged."""
    settings = {"arena_bytes": "1MiB", "disk_segment_bytes": "64KiB", "degrade_failures": 1000}
    with (
        Daemon(memory="64MiB", settings=settings) as daemon,
        Neighbour(daemon) as neighbour,
    ):
        yield neighbour


@pytest.fixture
def disk(running):
    """Give that neighbour, one of whose prompts is on disk alone; it must be found there in the end."""
    to_disk(running, OTHER)
    with running.unharmed():
        yield running
        assert check(running.cache, running.layout, OTHER) == TOKENS
        assert check(running.cache, running.layout, VICTIM) in {0, TOKENS}
        store(running.cache, running.layout, VICTIM)
        assert check(running.cache, running.layout, VICTIM) == TOKENS


def to_disk(neighbour, seed):
    """Store a prompt and leave it on disk alone; return the files in which its records lie, and from where on."""
    before = sizes(neighbour.daemon)
    cache, layout = neighbour.cache, neighbour.layout
    for kind in KINDS:
        with suppress(NotFoundError):
            cache.evict(layout, prompt(seed), boundary=TOKENS, kind=kind, disk=True)
    store(cache, layout, seed)
    cache.offload(layout, prompt(seed), boundary=TOKENS, drop_memory=True)
    after = sizes(neighbour.daemon)
    return [(path, before.get(path, PAGE)) for path in after if after[path] > before.get(path, PAGE)]


def sizes(daemon):
    """Return the bytes of each file of disk records; the cleaner may remove one meanwhile."""
    found = {}
    for path in segments(daemon):
        with suppress(FileNotFoundError):
            found[path] = path.stat().st_size
    return found


def segments(daemon):
    """Return the files of disk records in order."""
    return sorted((daemon.data_dir / "data").glob("*.seg"))


def of_victim(path, begin):
    """Return where the records of the victim's prompt begin in a file, from a place on."""
    data = path.read_bytes()
    starts = [at for at in range(begin, len(data), PAGE) if looks_like_header(data[at : at + PAGE])]
    return [at for at in starts if f"prompt {VICTIM} ".encode() in data[at : at + 3 * PAGE]]


def victim(neighbour):
    """Return a file that holds records of a prompt which is on disk alone, and where they begin."""
    found = [(path, of_victim(path, begin)) for path, begin in to_disk(neighbour, VICTIM)]
    return max(found, key=lambda entry: len(entry[1]))


CUTS = (0, 1, PAGE - 1, PAGE, PAGE + 1, PAGE + 5000, 3 * PAGE - 1)
FLIPS = {"header": 100, "unused end of the header": PAGE - 5, "payload": PAGE + 17, "end of the payload": 3 * PAGE - 1}


@pytest.mark.hostile("DI01")
@pytest.mark.slow
def test_a_file_cut_anywhere_is_a_miss(disk):
    """Cut at each border of its records, around it and inside: what is cut off is a miss, and can be stored again."""
    for number in range(3):
        for cut in CUTS:
            path, starts = victim(disk)
            os.truncate(path, starts[min(number, len(starts) - 1)] + cut)
            assert check(disk.cache, disk.layout, VICTIM) == 0, (number, cut)


@pytest.mark.hostile("DI02")
@pytest.mark.slow
@pytest.mark.parametrize("where", FLIPS)
def test_a_flipped_byte_is_a_miss(disk, where):
    """A byte flipped in header or payload makes its prompt a miss, whichever of its records it is."""
    for number in range(3):
        path, starts = victim(disk)
        overwrite(path, starts[min(number, len(starts) - 1)] + FLIPS[where], lambda old: bytes([old[0] ^ 0x10]))
        assert check(disk.cache, disk.layout, VICTIM) == 0, number


def overwrite(path, at, new, length=1):
    """Replace bytes of a file by what a function makes of them."""
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(length)
        file.seek(at)
        file.write(new(old))


@pytest.mark.hostile("DI03")
@pytest.mark.slow
def test_two_swapped_records_are_a_miss(disk):
    """Two records of equal size in each other's places are both sound, and neither is handed out."""
    path, starts = victim(disk)
    data = bytearray(path.read_bytes())
    one, other = (slice(at, at + 3 * PAGE) for at in starts[:2])
    data[one], data[other] = data[other], data[one]
    path.write_bytes(data)
    assert check(disk.cache, disk.layout, VICTIM) == 0


@pytest.mark.hostile("DI04")
@pytest.mark.slow
def test_a_record_of_another_key_is_a_miss(disk):
    """A sound record of another prompt, copied over, is not handed out as the one that was there."""
    path, starts = victim(disk)
    source = next(one for one in segments(disk.daemon) if f"prompt {OTHER} ".encode() in one.read_bytes())
    data = source.read_bytes()
    at = next(at for at in range(PAGE, len(data), PAGE) if looks_like_header(data[at : at + PAGE]))
    overwrite(path, starts[0], lambda _: data[at : at + 3 * PAGE], 3 * PAGE)
    assert check(disk.cache, disk.layout, VICTIM) == 0


@pytest.mark.hostile("DI05")
@pytest.mark.slow
@pytest.mark.parametrize("replace", REPLACEMENTS, ids=lambda one: one.__name__)
def test_what_stands_in_the_place_of_a_file_is_a_miss(disk, replace):
    """A file that is gone, or another kind of file, is a miss at once, after a restart too, and is left as it is."""
    path, _ = victim(disk)
    while f"prompt {OTHER} ".encode() in path.read_bytes():
        path, _ = victim(disk)
    disk.daemon.kill()
    disk.daemon.wait_ready()
    replace(path)
    assert check(disk.cache, disk.layout, VICTIM) == 0
    there = os.path.lexists(path)
    disk.daemon.kill()
    disk.daemon.wait_ready()
    assert check(disk.cache, disk.layout, VICTIM) == 0
    assert os.path.lexists(path) == there


PLACES = """
import subprocess, sys
from pathlib import Path
sys.path.insert(0, "tests")
from kvledger import Cache
from kvledger.errors import KVLedgerError
from kvledger.errors import LeaseLost, NotFoundError
from kvledger.testing import Daemon
from support.neighbour import TOKENS
from support.tiny import check, prompt, store, tiny_layout

def offloaded(seed):
    store(cache, layout, seed)
    try:
        cache.offload(layout, prompt(seed), boundary=TOKENS, drop_memory=True)
    except KVLedgerError as error:
        assert error.remedy, error
        return error.code
    return "written"

place = Path(sys.argv[1])
settings = {"arena_bytes": "4MiB", "disk_segment_bytes": "64KiB", "disk_bytes": "1GiB"}
with Daemon(memory="64MiB", directory=place, settings=settings) as daemon, Cache.open(daemon.socket) as cache:
    layout = cache.register(tiny_layout())
    assert offloaded(0) == "written"
    disk = place / "data" / "data"
    subprocess.run(["mount", "--bind", disk, disk], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", disk], check=True)
    seed = 1
    while offloaded(seed) == "written":
        seed += 1
    print("read-only", {check(cache, layout, n) for n in range(seed + 1)})
    subprocess.run(["umount", disk], check=True)
with Daemon(memory="64MiB", directory=place / "full", settings=settings) as daemon:
    daemon.stop()
    disk = place / "full" / "data" / "data"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
    daemon.start()
    daemon.wait_ready()
    with Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        seed = 0
        while offloaded(seed) == "written":
            seed += 1
        print("full", {check(cache, layout, n) for n in range(seed + 1)})
        daemon.kill()
        daemon.wait_ready()
        print("killed", {check(cache, layout, n) for n in range(seed + 1)})
    daemon.stop()
    subprocess.run(["umount", disk], check=True)
"""


@pytest.mark.hostile("DI06", "DI07")
@pytest.mark.slow
def test_a_directory_that_takes_no_writes_costs_writes_only(tmp_socket_dir):
    """Where the directory became read-only, or its disk is full, offloads are refused in words and all is hit."""
    command = ["unshare", "-rm", sys.executable, "-c", PLACES, str(tmp_socket_dir)]
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace is to be had")
    found = subprocess.run(command, capture_output=True, text=True, check=False)

    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == ["read-only {50}", "full {50}", "killed {50}"]


@pytest.mark.hostile("DI10", "TI03")
@pytest.mark.slow
def test_a_copy_on_another_machine_serves_what_is_on_disk(tmp_socket_dir):
    """A copied directory under another boot id has the prompts on disk and none of memory; the original goes on."""
    with Manager(tmp_socket_dir) as here:
        here.start()
        with Neighbour(here) as neighbour:
            to_disk_of(neighbour.cache, neighbour.layout, 1)
            (tmp_socket_dir / "there").mkdir()
            shutil.copytree(here.data_dir, tmp_socket_dir / "there" / "data")
            with Manager(tmp_socket_dir / "there", boot=other_boot(tmp_socket_dir)) as there:
                # The store of the first one, as if its descriptors had come along: they are of another boot.
                there.start(here.store.items())
                with Cache.open(there.socket, staging_bytes=1 << 17) as cache:
                    layout = cache.register(tiny_layout("neighbour"))
                    assert check(cache, layout, 1) == TOKENS
                    assert check(cache, layout, 2) == 0
                    store(cache, layout, 2)
                    assert check(cache, layout, 2) == TOKENS
            assert check(neighbour.cache, neighbour.layout, 1) == TOKENS
            assert check(neighbour.cache, neighbour.layout, 2) == TOKENS
            neighbour.is_served()


@pytest.mark.hostile("TI03")
@pytest.mark.slow
def test_another_boot_id_drops_memory_and_leases_by_event(tmp_socket_dir):
    """When the boot id has changed, memory that was given back all the same is not believed; what is on disk is hit."""
    with Manager(tmp_socket_dir) as manager:
        manager.start()
        with Neighbour(manager) as neighbour:
            to_disk_of(neighbour.cache, neighbour.layout, 1)
            hit = neighbour.cache.acquire(neighbour.layout, [*prompt(2), 7])
            assert hit.tokens == TOKENS
            manager.kill()
            manager.boot = other_boot(tmp_socket_dir)
            manager.start()
            assert check(neighbour.cache, neighbour.layout, 1) == TOKENS
            assert check(neighbour.cache, neighbour.layout, 2) == 0
            with pytest.raises(LeaseLost):
                hit.check()
            neighbour.is_served()
            # The daemon's own drill holds a lease now and then.
            assert any(neighbour.holdings()["leases"] == 0 for _ in range(100))


def to_disk_of(cache, layout, seed):
    """Write a prompt to disk; its memory stays."""
    cache.offload(layout, prompt(seed), boundary=TOKENS)


def other_boot(folder: Path) -> Path:
    """Return a file that names a boot of another machine."""
    path = folder / "boot_id"
    path.write_text("01234567-89ab-cdef-0123-456789abcdef\n")
    return path
