"""kvledger: one authority over the KV cache of a node, for models whose layers keep different kinds of state."""
