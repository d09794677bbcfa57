"""Copies of what is stored: offload, restore, eviction, records."""
