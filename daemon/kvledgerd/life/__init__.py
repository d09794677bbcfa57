"""From a data directory to a serving daemon and to its end: recovery, assembly, holding on, watchdog."""
