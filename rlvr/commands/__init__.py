"""What scripts do with several parts of the library."""
