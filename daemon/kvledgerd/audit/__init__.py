"""Answers from the log alone: the life of an object, who read it, and why a look-up was a miss.

Every answer is made by replaying the log through the same `apply` that the daemon uses, so it can not tell another
story than the cache did.
"""
