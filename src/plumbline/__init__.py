"""Plumbline: post-train small language models on checkable tasks, and show whether the training is true."""

__version__ = "0.1.0"
