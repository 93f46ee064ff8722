"""Web forms: a model reads what to enter and writes a plan; the reward is what the server received.

suite/ declares the forms and draws their records, site/ serves them, plans/ reads and writes the
plan languages, executors/ carry plans out, and rubric.py scores the submission. Nothing here pays
for what a plan claims.
"""
