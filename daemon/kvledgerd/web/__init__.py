"""Serving HTTP to this machine alone: the scrapes of Prometheus, and the page."""
