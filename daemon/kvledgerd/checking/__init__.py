"""What lies outside the daemon, compared with what its log says: for ``kvledger check``, ``log verify``, ``export``."""
