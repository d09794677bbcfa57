"""``kvledger check``: the state that the log makes, and what it says about memory and disk, compared with what is."""
