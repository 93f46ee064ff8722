"""Carries plans out on the site: what a user would do with them, and what came of it."""
