"""Triton kernels for all work on tensors, each beside its reference of the same bytes."""
