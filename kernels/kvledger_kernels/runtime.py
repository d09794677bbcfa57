"""Where Triton comes from, and when its kernels serve.

A machine without a GPU has no use for Triton and often no Triton either, so importing a kernel file must work without
it: `jit` then leaves the function as it is, and `kernel_serves` refuses tensors that would need it. On a CPU the
torch or numpy reference serves, never the interpreter, which is some thousand times slower; the exception is a
process that was started with ``TRITON_INTERPRET=1``, which asks for exactly that (the tests do).
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from kvledger_kernels.errors import refuse

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import Tensor

__all__ = ["constant", "jit", "kernel_serves", "on_device_of", "tl", "triton"]

_INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"


def jit(function: Callable[..., Any]) -> Any:
    """Compile a kernel at its first launch; without Triton, leave it as it is, never to be launched."""
    return function if triton is None else triton.jit(function)


def constant(value: int) -> Any:
    """Return a module constant that kernels may read."""
    return value if tl is None else tl.constexpr(value)


def kernel_serves(tensor: Tensor) -> bool:
    """Tell whether the Triton kernel (true) or the reference (false) has to do the work on a tensor.

    Raises:
        KernelArgumentError: The tensor lies on a GPU and Triton is not installed.
    """
    if tensor.is_cuda and triton is None:
        refuse("device", "tensors on a GPU need Triton", "install kvledger[gpu]")
    return tensor.is_cuda or _INTERPRETED


def on_device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Make the tensor's GPU the current one, where Triton launches; does nothing for a tensor on the CPU."""
    import torch  # noqa: PLC0415 - the daemon fingerprints host buffers without ever loading torch

    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
