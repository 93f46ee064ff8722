"""Discrete flow: FS-DFM, uniform or mask source, jumps with exact probabilities."""
