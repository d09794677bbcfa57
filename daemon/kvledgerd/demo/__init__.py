"""The demo: real models of small size share one cache, die, come back and are proven equal."""
