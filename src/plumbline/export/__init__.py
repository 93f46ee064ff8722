"""A trained model for others: merged weights, the adapter alone or a GGUF file, each with a model
card."""
