"""The fault run: all groups of faults that the design lists, tried in one go and counted."""
