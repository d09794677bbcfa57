"""The settings: their table, how they are read from file, environment and command line, and which contradict others."""
