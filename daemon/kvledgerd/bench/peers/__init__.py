"""Other caches, measured beside kvledger where they are installed; nothing here is needed to run or test it."""
