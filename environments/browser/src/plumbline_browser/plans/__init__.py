"""The steps that plans are written in: typed actions, their words, and how both become the
other."""
