"""The declarations, a file for each domain."""
