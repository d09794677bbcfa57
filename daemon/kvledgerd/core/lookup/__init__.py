"""Look-ups: what is judged, what is offered, and the lease on it."""
