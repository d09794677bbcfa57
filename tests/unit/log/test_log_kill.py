"""A real process, really killed: what it had reported is there."""

import random
import subprocess
import sys

import pytest

from kvledger_storage.log import EventLog, verify
from support.log_sessions import contents

WRITER = """
import sys, itertools, pathlib, msgspec, os, time
from kvledger_storage.log import EventLog
log = EventLog.open(pathlib.Path(sys.argv[1]), segment_bytes=8192)
say = lambda written, durable: os.write(1, b"%d\\n" % written)
writer = log.writer(log.last_incarnation + 1, say, lambda error: os.abort())
for number in itertools.count(log.last_seq + 1):
    writer.submit([[msgspec.msgpack.encode([number, b"x" * (number % 50)])]], durable=number % 7 == 0)
    while writer.statistics().pending > 20:
        time.sleep(0.001)
"""


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_writer_loses_nothing_it_had_reported(tmp_path, seed):
    """Through three SIGKILLs of one log every event that was reported written is there, in order and unchanged."""
    rng = random.Random(seed)
    reported = 0
    for incarnation in range(1, 4):
        with subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE) as process:
            lines = [process.stdout.readline() for _ in range(rng.randrange(1, 60))]
            process.kill()
            lines += [line for line in process.stdout if line.endswith(b"\n")]
        assert int(lines[-1]) > reported
        reported = int(lines[-1])
        assert verify(tmp_path).ok
        with EventLog.open(tmp_path, segment_bytes=8192) as log:
            assert log.last_seq >= reported
            assert log.last_incarnation == incarnation
            assert list(contents(log)) == list(range(1, log.last_seq + 1))
