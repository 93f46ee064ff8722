"""The reward audited without a model, before any GPU-hour: what earns, what should and does not,
and what breaks."""
