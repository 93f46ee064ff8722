"""Ways to write something about a table without analysing it: what they earn is the floor."""

CONTROLS = {}
