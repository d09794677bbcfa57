"""The asynchronous client, and the source from which scripts/unasync.py writes the synchronous one."""
