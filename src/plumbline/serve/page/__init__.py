"""The page at `/`: a model and an example are picked, its answer is seen as it comes, and then
judged.

index.html, page.css, page.js, shown.css and icon.svg are the page; routes.py serves them and what
they ask beside `/v1`: examples of the tasks that the models were trained on, and verdicts
(trials.py).
"""
