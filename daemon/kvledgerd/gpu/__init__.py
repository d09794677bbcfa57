"""What can only be seen on a machine with a GPU: kernels on it, a model on it, graphs over memory that is pinned."""
