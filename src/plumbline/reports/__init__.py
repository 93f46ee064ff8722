"""From a run directory to what people read: HTML, Markdown, CSV, LaTeX. Functions of the records
alone."""
