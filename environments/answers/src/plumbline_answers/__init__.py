"""Two tasks with short answers and no data: JSON exactly as asked, and a word, a number or a few
words."""
