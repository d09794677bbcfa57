"""What the data segments tell without a log: reading them, and making a log that knows of what is worth keeping."""
