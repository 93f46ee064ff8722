"""The commerce task: a synthetic Brazilian shop, and jobs on its records."""
