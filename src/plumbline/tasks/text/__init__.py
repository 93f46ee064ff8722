"""Reading text as people and models write it: lenient JSON, pt-BR numbers."""
