"""Units: what is reserved, filled and committed together."""
