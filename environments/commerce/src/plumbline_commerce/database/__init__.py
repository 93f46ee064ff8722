"""A synthetic Brazilian shop as one SQLite file: Olist's tables, our own rows, and labelled
reviews.

Example:
    summary = build_database(Path("commerce.db"), orders=20_000, seed=42)
"""

from plumbline_commerce.database.build import BuildSummary, build_database

__all__ = ["BuildSummary", "build_database"]
