"""A Chromium of its own for tasks whose answers are carried out in a browser."""
