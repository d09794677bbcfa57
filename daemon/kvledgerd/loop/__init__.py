"""The writer loop: decide, apply, record, and let replies and effects go when the log has reached their class."""
