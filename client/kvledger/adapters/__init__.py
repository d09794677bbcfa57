"""Adapters: how an engine that people run hands its cache to kvledger and gets it back.

Nothing is imported here, so that an engine pays only for the adapter that it names.
"""
