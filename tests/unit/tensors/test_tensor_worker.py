"""The tensor worker without a process: pauses after deaths, what a device has to show, and what the two may say."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import msgspec
import pytest
import torch

from kvledger.errors import ServiceError
from kvledger_kernels.quantise import Code
from kvledgerd.core.commands import Converted
from kvledgerd.core.decision import ConvertSlots
from kvledgerd.settings.loading import ConfigError
from kvledgerd.tensor_device import DeviceRefusedError, TensorDevice
from kvledgerd.tensors.devices import Gpu, open_device, proves_itself
from kvledgerd.tensors.messages import Done, Failed, Give, Job, Link, Ready
from kvledgerd.tensors.process import ProcessLostError
from kvledgerd.tensors.worker import TensorWorker

EFFECT = ConvertSlots(7, ())
LOG = SimpleNamespace(log_id=bytes(16), boot_id=bytes(16), lock_fd=0)


class Process:
    """A process that does what it was told to."""

    pid = 1

    def __init__(self, does):
        self.does, self.ended = does, False

    def greet(self, begin) -> str:
        """Name the device, or refuse it."""
        if isinstance(self.does, DeviceRefusedError):
            raise self.does
        return "toy"

    def give(self, arenas, wanted) -> None:
        """Take arenas."""

    def ask(self, job: Job, seconds: float):
        """Answer, or die."""
        if isinstance(self.does, Exception):
            raise self.does
        return self.does

    def kill(self) -> None:
        """Note that it was killed."""
        self.ended = True

    def end(self) -> int:
        """Note that it was ended."""
        self.ended = True
        return -9


class Bench:
    """A worker over processes that are named beforehand, with a clock that stands still."""

    def __init__(self, *does):
        self.now, self.made, self.does = 100.0, [], list(does)
        device = TensorDevice("cuda:0")
        self.worker = TensorWorker(device, {}, LOG, 30, start=self.start, clock=lambda: self.now)

    def start(self, lock):
        """Return the next process."""
        self.made.append(Process(self.does.pop(0)))
        return self.made[-1]


DONE = Done(msgspec.Raw(msgspec.msgpack.encode(Converted(7))))
LOST = ProcessLostError("it has died")


def test_a_job_is_answered_by_its_command():
    """The answer of the process is the command, and the job is counted."""
    bench = Bench(DONE)

    assert bench.worker.run(EFFECT) == Converted(7)
    assert bench.worker.counters()["tensor_convert_jobs"] == 1


def test_a_process_that_died_is_followed_by_another():
    """The job fails when nothing is left of the process; the next job starts a new one at once, later ones wait."""
    bench = Bench(LOST, LOST, LOST, DONE)
    for _ in range(2):
        with pytest.raises(ServiceError, match="is gone: it has died"):
            bench.worker.run(EFFECT)
    with pytest.raises(ServiceError, match="died 2 times in a row, the next one starts in 1 s"):
        bench.worker.run(EFFECT)
    bench.now += 1.0
    with pytest.raises(ServiceError, match="is gone"):
        bench.worker.run(EFFECT)
    bench.now += 1.0
    with pytest.raises(ServiceError, match="starts in 1 s"):
        bench.worker.run(EFFECT)
    bench.now += 1.0
    assert bench.worker.notes() == {"tensor_lost": "3 times in a row, at last: it has died"}

    assert bench.worker.run(EFFECT) == Converted(7)
    assert bench.worker.notes() == {}
    assert [process.ended for process in bench.made] == [True, True, True, False]
    assert bench.worker.counters()["tensor_lost"] == 3
    assert bench.worker.counters()["tensor_convert_failed"] == 5


def test_a_job_that_fails_costs_no_process():
    """A typed error is the job's own: the process goes on."""
    bench = Bench(Failed("wrong bytes"))
    with pytest.raises(ServiceError, match="wrong bytes"):
        bench.worker.run(EFFECT)

    assert [process.ended for process in bench.made] == [False]


def test_a_process_that_answers_nonsense_is_ended():
    """An answer that is no command of the right type ends the process that gave it."""
    bench = Bench(Done(msgspec.Raw(b"\x01")))
    with pytest.raises(ServiceError, match="is gone"):
        bench.worker.run(EFFECT)

    assert bench.made[0].ended


def test_a_refused_device_is_a_wrong_setting_at_the_start():
    """A daemon that can not have its device says which setting is wrong; later on the same costs a miss."""
    refused = DeviceRefusedError("cuda:0 can not be used", field="tensor_device", remedy="set cpu")
    bench = Bench(refused, refused)
    with pytest.raises(ConfigError) as caught:
        bench.worker.prove()
    assert (caught.value.field, caught.value.remedy) == ("tensor_device", "set cpu")
    with pytest.raises(ServiceError, match="cuda:0 can not be used"):
        bench.worker.run(EFFECT)
    assert [process.ended for process in bench.made] == [True, True]


def test_a_daemon_that_stops_waits_for_no_job():
    """The process is killed, so the job that runs fails, and no other one begins."""
    bench = Bench(DONE)
    bench.worker.run(EFFECT)
    bench.worker.stop()
    assert bench.made[0].ended
    with pytest.raises(ServiceError, match="the daemon stops"):
        bench.worker.run(EFFECT)
    bench.worker.close()


def test_a_cpu_proves_itself_and_a_liar_does_not():
    """A device counts as one if it makes of noise what the reference makes of it; torch's own CPU does."""
    assert proves_itself(Gpu("cpu", "torch"))
    honest = open_device("cpu")
    assert proves_itself(honest)
    liars = (
        {"relayout": lambda conversion, source, target: target.fill(0)},
        {"quantise": lambda values, code: honest.quantise(values, Code.INT8)},
        {"dequantise": lambda data, values, code: honest.dequantise(data, values, code) ^ 1},
    )
    for lie in liars:
        right = {name: getattr(honest, name) for name in ("relayout", "quantise", "dequantise")}
        assert not proves_itself(SimpleNamespace(**(right | lie)))


@pytest.mark.slow
def test_what_runs_on_a_gpu_proves_itself_where_kernels_are_interpreted():
    """All but the device is what runs on a GPU: tensors are made, kernels launched, and results brought back."""
    program = (
        "from kvledgerd.tensors.devices import Gpu, proves_itself; print(proves_itself(Gpu('cpu', 'interpreted')))"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_named():
    """Without a GPU the refusal names the setting, what lacks, and what to do."""
    with pytest.raises(DeviceRefusedError, match=r"tensor_device: cuda:0 can not be used: .*or set cpu"):
        open_device("cuda:0")


@pytest.mark.parametrize("text", ["", "gpu", "cuda", "cuda:", "cuda:-1", "cuda:01", "cpu:0", "mps"])
def test_a_device_is_named_as_torch_names_it(text):
    """Nothing else is a device."""
    with pytest.raises(ValueError, match="write cpu, or cuda:0"):
        TensorDevice.parse(text)


def test_messages_take_descriptors_along():
    """What one side sends the other gets, with a descriptor of its own."""
    one, other = socket.socketpair()
    ours, theirs = Link(one), Link(other)
    memory = os.memfd_create("arena")
    ours.send(Give(3), time.monotonic() + 60, memory)
    message, descriptor = theirs.receive_job()
    assert message == Give(3)
    assert os.path.sameopenfile(descriptor, memory)

    theirs.send(Ready("toy"))
    assert ours.receive_answer(time.monotonic() + 60) == Ready("toy")
    for fd in (descriptor, memory):
        os.close(fd)
    ours.close()
    with pytest.raises(EOFError):
        theirs.receive_job()
    theirs.close()


@pytest.mark.parametrize("frame", [b"\x00", b"\xff\xff\xff\xff", b"\x01\x00\x00\x00\xc1"])
def test_frames_that_are_none_are_errors(frame):
    """A frame that is cut, too long or no message is refused, and waits for nothing longer than it may."""
    one, other = socket.socketpair()
    ours = Link(one)
    other.sendall(frame)
    with pytest.raises((TimeoutError, ConnectionError, msgspec.MsgspecError)):
        ours.receive_answer(time.monotonic() + 0.05)
    ours.close()
    other.close()
