# Generated from kvledger/_async/__init__.py by scripts/unasync.py; change it there.
"""The synchronous client, written by scripts/unasync.py from the asynchronous one."""
