"""What lies on disk and in shared memory: the log, the arenas and the disk segments."""
