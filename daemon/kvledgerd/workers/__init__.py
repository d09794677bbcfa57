"""What effects make happen: copies, hashes, arenas and disk records, in threads and off the loop."""
