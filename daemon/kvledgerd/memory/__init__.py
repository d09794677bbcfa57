"""The memory that the daemon shares with its engines: its arenas, and the rings that they write into."""
