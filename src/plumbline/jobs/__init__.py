"""A run as a job: one specification, checked before it is sent, on a process of its own, Ray or
Anyscale."""
