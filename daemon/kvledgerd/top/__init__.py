"""``kvledger top``: what a daemon does now, from two looks at its counters."""
