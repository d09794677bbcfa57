"""Epochs: weights that are canary, active, draining or retired."""
