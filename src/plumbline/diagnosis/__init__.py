"""What is wrong, as findings."""
