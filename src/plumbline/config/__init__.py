"""What settings are read with: sections of typed keys, overrides of a command line, imports that
may fail."""
