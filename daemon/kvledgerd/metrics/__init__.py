"""Metrics: what a status report counts, in the text form of Prometheus."""
