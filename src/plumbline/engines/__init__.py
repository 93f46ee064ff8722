"""Engines that are not ours, each behind the interface of a sampler."""
