"""Surviving: the service manager's notify protocol, and a keeper that speaks it where there is no service manager."""
