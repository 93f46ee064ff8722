"""Every command: its arguments, one call, and what is printed."""
