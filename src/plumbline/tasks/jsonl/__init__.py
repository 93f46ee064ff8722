"""A task of the user's own: files of prompts, and a scoring function."""
