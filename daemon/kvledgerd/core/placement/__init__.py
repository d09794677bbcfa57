"""Where bytes go: caps, room, growth, eviction orders and quotas."""
