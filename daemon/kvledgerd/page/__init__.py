"""The page for people who would rather look: what the cache keeps, what was asked of it, and why it answered as it did.

A process of its own (decision 0028): it reads the audit database, asks the daemon for its status, and changes nothing.
"""
