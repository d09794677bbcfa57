"""A soak: engines that write, read and verify at full capacity, while they and the daemon are killed at random.

Every byte of an object follows from the tokens that it stands for, so any engine can tell at any time what it should
hold, whoever stored it and however often it went to disk, moved or came back.
"""
