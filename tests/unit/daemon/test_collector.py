"""Memory that a start has passed through is given back."""

import gc
import platform
from pathlib import Path

import pytest

from kvledgerd.collector import collector_paused, keep_for_good

KIB = 1 << 10
MIB = 1 << 20


def resident():
    """Return what of this process is in memory, bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * KIB


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps holes for itself")
def test_holes_between_what_stays_are_given_back():
    """Of a hundred megabytes in pieces most are gone, although every tenth piece lives on."""
    pieces = [bytes([1]) * (50 * KIB) for _ in range(2000)]
    kept = pieces[::10]
    full = resident()
    del pieces
    try:
        keep_for_good()
    finally:
        gc.unfreeze()
    assert full - resident() > 60 * MIB
    assert len(kept) == 200


def test_the_collector_goes_on_where_it_ran_before():
    """It rests in the block, however nested, and is as it was behind it."""
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
