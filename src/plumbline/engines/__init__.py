"""Engines that are not ours, each behind the interface of a sampler: vLLM over HTTP, any OpenAI-compatible endpoint."""
