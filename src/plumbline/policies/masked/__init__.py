"""Masked diffusion: LLaDA, Dream, and any causal model made bidirectional."""
