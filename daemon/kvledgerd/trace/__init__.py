"""Replaying request traces: against the real core, against standard policies, and against a running daemon."""
