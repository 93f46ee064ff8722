"""What is wrong: before a run (`preflight`, `refusals`), in its records (`diagnosis`), with a
reward (`audit`)."""
