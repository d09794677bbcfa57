"""Triton kernels for all work on tensors, each beside its torch or numpy reference of the same bytes.

`fingerprint`, `pack` and `unpack` hold one kernel each; `pages` describes paged memory and `paged_copy` is what pack
and unpack share; `objects` makes objects of plain tensors. `check` proves all of it on a machine without a GPU.
Importing the package loads neither torch nor Triton.
"""
