"""What a run leaves on disk, how it is read back, and who is told while it goes on."""
