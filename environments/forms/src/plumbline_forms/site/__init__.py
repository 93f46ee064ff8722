"""The site that the forms stand on: pages, checks, and every submission that was received."""
