"""Where tensors are worked on: the references of the kernels on a CPU, the kernels themselves on a GPU.

Host bytes go in and host bytes come out, whatever did the work. A GPU has to prove itself before it is given anything:
what it makes of some noise has to be what the reference makes of it.
"""

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from kvledger.page_formats import PageFormat
from kvledger_kernels.dequantise import dequantise, dequantise_reference
from kvledger_kernels.quantise import Code, quantise, quantise_reference, quantised_bytes
from kvledger_kernels.relayout import Conversion, relayout, relayout_reference
from kvledgerd.tensor_device import DeviceRefusedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Device", "Gpu", "open_device", "proves_itself"]

_PROOF_ROWS: Final = 1000
_PROOF_VALUES: Final = 10_000


class Device(Protocol):
    """What works on tensors.

    Attributes:
        name: What it is, for people.
    """

    name: str

    def relayout(self, conversion: Conversion, source: "NDArray[np.uint8]", target: "NDArray[np.uint8]") -> None:
        """Convert an object; both arrays are host memory, `target` is written whole."""

    def quantise(self, values: "NDArray[np.uint16]", code: Code) -> "NDArray[np.uint8]":
        """Return the codes and scales of the bits of bf16 values."""

    def dequantise(self, data: "NDArray[np.uint8]", values: int, code: Code) -> "NDArray[np.uint16]":
        """Return the bits of so many bf16 values."""


class Processor:
    """A CPU, which needs neither torch nor Triton."""

    name = "cpu"

    def relayout(self, conversion: Conversion, source: "NDArray[np.uint8]", target: "NDArray[np.uint8]") -> None:
        """See `Device`."""
        relayout_reference(conversion, source, target)

    def quantise(self, values: "NDArray[np.uint16]", code: Code) -> "NDArray[np.uint8]":
        """See `Device`."""
        return quantise_reference(values, code)

    def dequantise(self, data: "NDArray[np.uint8]", values: int, code: Code) -> "NDArray[np.uint16]":
        """See `Device`."""
        return dequantise_reference(data, values, code)


class Gpu:
    """A GPU, through torch.

    Args:
        device: As torch names it.
        name: What it is.
    """

    def __init__(self, device: str, name: str) -> None:
        import torch  # noqa: PLC0415 - a process that works on a CPU never loads it

        self._torch: Final = torch
        self._device: Final = torch.device(device)
        self.name = name

    def relayout(self, conversion: Conversion, source: "NDArray[np.uint8]", target: "NDArray[np.uint8]") -> None:
        """See `Device`."""
        out = self._torch.empty(len(target), dtype=self._torch.uint8, device=self._device)
        relayout(conversion, self._torch.from_numpy(source).to(self._device), out)
        self._torch.from_numpy(target).copy_(out)  # waits for the kernel

    def quantise(self, values: "NDArray[np.uint16]", code: Code) -> "NDArray[np.uint8]":
        """See `Device`."""
        out = self._torch.empty(quantised_bytes(len(values)), dtype=self._torch.uint8, device=self._device)
        quantise(self._torch.from_numpy(values).to(self._device).view(self._torch.bfloat16), out, code)
        found: NDArray[np.uint8] = out.cpu().numpy()
        return found

    def dequantise(self, data: "NDArray[np.uint8]", values: int, code: Code) -> "NDArray[np.uint16]":
        """See `Device`."""
        out = self._torch.empty(values, dtype=self._torch.bfloat16, device=self._device)
        dequantise(self._torch.from_numpy(data.copy()).to(self._device), out, code)
        found: NDArray[np.uint16] = out.view(self._torch.uint16).cpu().numpy()
        return found


def open_device(name: str) -> Device:
    """Return a device that works.

    Args:
        name: `cpu`, or a GPU as torch names it.

    Raises:
        DeviceRefusedError: Names what lacks.
    """
    if name == "cpu":
        return Processor()
    try:
        gpu, why = _opened(name)
    except Exception as error:  # noqa: BLE001 - drivers and compilers raise what they like, and all of it is a refusal
        gpu, why = None, f"{type(error).__name__}: {error}"
    if gpu is None:
        remedy = "install kvledger[gpu] and a driver that torch finds, name a GPU that is there, or set cpu"
        raise DeviceRefusedError(f"{name} can not be used: {why}", field="tensor_device", remedy=remedy)
    return gpu


def _opened(name: str) -> tuple[Gpu | None, str]:
    """Return a GPU, or none and why."""
    why = _why_not(name)
    if why:
        return None, why
    import torch  # noqa: PLC0415 - known to be there by now

    gpu = Gpu(name, f"{name}, {torch.cuda.get_device_name(name)}")
    return (gpu, "") if proves_itself(gpu) else (None, "what its kernels make of noise differs from the reference")


def _why_not(name: str) -> str:
    try:
        import torch  # noqa: PLC0415 - a process that works on a CPU never loads it
    except ImportError:
        return "torch is not installed"
    from kvledger_kernels.runtime import triton  # noqa: PLC0415 - as above

    if triton is None:
        return "Triton is not installed"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no GPU"
    found = torch.cuda.device_count()
    return "" if int(name.partition(":")[2]) < found else f"torch finds {found}, counted from cuda:0"


def proves_itself(device: Device) -> bool:
    """Tell whether a device makes of noise what the references make of it."""
    noise = np.random.default_rng(2).integers(0, 1 << 16, _PROOF_VALUES, dtype=np.uint16)
    for code in Code:
        data = quantise_reference(noise, code)
        if not np.array_equal(device.quantise(noise, code), data):
            return False
        if not np.array_equal(device.dequantise(data, len(noise), code), dequantise_reference(data, len(noise), code)):
            return False
    return _converts(device)


def _converts(device: Device) -> bool:
    rows = PageFormat("proof.rows", "proof", (512, 16), ((0, 1),), 16, 528, 16 * 528)
    split = PageFormat("proof.split", "proof", (512, 16), ((0,), (1,)), 64, 0, 64 * 528 + 192)
    conversion = Conversion(rows, split, layers=2, rows=_PROOF_ROWS)
    noise = np.frombuffer(np.random.default_rng(1).bytes(conversion.object_bytes(rows)), dtype=np.uint8).copy()
    made, right = (np.full(conversion.object_bytes(split), 0xA5, dtype=np.uint8) for _ in range(2))
    device.relayout(conversion, noise, made)
    relayout_reference(conversion, noise, right)
    return bool((made == right).all())
