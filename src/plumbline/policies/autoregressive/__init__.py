"""Causal language models: any that transformers loads."""
