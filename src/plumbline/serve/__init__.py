"""Models behind an OpenAI-compatible address: all four families, a browser agent's planner, a
page."""
