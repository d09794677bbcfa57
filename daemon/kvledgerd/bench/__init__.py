"""The benchmarks of the design's section 16, installed with the daemon so that any machine can be measured."""
