"""What the log tests stand on: events to log, a writer that can be waited for, and logs of a known shape."""

import shutil
import threading

import msgspec

from kvledger_storage.log import EventLog
from support.log_faults import FastLogIO

SMALL = 1024
WAIT_S = 60


def event(number, size=8):
    """Return event `number`, whose bytes tell it from every other."""
    return msgspec.msgpack.encode([number, b"%d" % number * size])


class Session:
    """An open log with its writer, and everything that the writer reported."""

    def __init__(self, directory, io=None, incarnation=1, segment_bytes=SMALL, **options):
        self.log = EventLog.open(directory, io=io or FastLogIO(), segment_bytes=segment_bytes, **options)
        self.written = self.log.last_seq
        self.durable = self.log.last_seq
        self.errors = []
        self._change = threading.Condition()
        try:
            self.writer = self.log.writer(incarnation, self._on_reached, self._on_error)
        except BaseException:
            self.log.close()
            raise

    def submit(self, numbers, *, durable=False, size=8):
        """Submit one event for each number as one submission; return its last seq."""
        return self.writer.submit([[event(number, size) for number in numbers]], durable=durable)

    def put(self, numbers, *, durable=False, size=8):
        """Submit, and wait until the report that was asked for has come, so that each call makes a frame."""
        seq = self.submit(numbers, durable=durable, size=size)
        self.wait(lambda: (self.durable if durable else self.written) >= seq or self.errors)
        return seq

    def wait(self, reached):
        """Wait until `reached()`; fail the test if it takes too long."""
        with self._change:
            assert self._change.wait_for(reached, WAIT_S), "the log writer did not report in time"

    def close(self):
        """Close the log in order."""
        self.log.close()

    def _on_reached(self, written, durable):
        with self._change:
            self.written, self.durable = written, durable
            self._change.notify_all()

    def _on_error(self, error):
        with self._change:
            self.errors.append(error)
            self._change.notify_all()


def snapshot(session, target):
    """Copy the files of a living log, which is what SIGKILL would leave, then close it."""
    shutil.copytree(session.log.directory, target)
    session.close()
    return target


def contents(log):
    """Return what a log holds as {seq: event bytes}."""
    return {seq: data for seq, _, data in log.read(log.first_seq)}
