"""The two languages in which a model may write a plan, and the typed actions that both are read
into."""
