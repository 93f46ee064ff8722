"""Models that sample trajectories and score them by one sampling distribution."""

from plumbline.policies.opening import open_policy

__all__ = ["open_policy"]
