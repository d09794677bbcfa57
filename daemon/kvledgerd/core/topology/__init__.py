"""Topologies: what captured graphs read in place."""
