"""Snapshots: the state as bytes and back, made by a process of its own, used by the next start."""
