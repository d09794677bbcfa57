"""Incarnations, engines, layouts and arenas, and the log's own past."""
