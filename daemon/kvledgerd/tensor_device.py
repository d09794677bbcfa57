"""The setting that names where tensors are worked on: `cpu`, or a GPU as torch names it, `cuda:0`; and its refusal."""

import re
from typing import Final, Self

from kvledger.errors import ServiceError

__all__ = ["DeviceRefusedError", "TensorDevice"]

_NAMES: Final = re.compile(r"cpu|cuda:(0|[1-9][0-9]{0,2})")


class DeviceRefusedError(ServiceError):
    """The device that the settings name can not be used."""

    code = "device"


class TensorDevice(str):
    """The text of such a setting."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Check a text and return it in the usual spelling; whether there is such a device is found out at a start.

        Raises:
            ValueError: It names no device.
        """
        name = text.strip().lower()
        if not _NAMES.fullmatch(name):
            raise ValueError("write cpu, or cuda:0 and so on")
        return cls(name)

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self != "cpu"
