"""Engines and workers that do a run's work outside of its process: imported only where a recipe
asks for them."""
