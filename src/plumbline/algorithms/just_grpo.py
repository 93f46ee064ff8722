"""JustGRPO: a masked diffusion model is trained as if it were autoregressive, one place after the
other from the left.

Rule. Rollouts fill the leftmost hidden place in each step (`sampling.selector: leftmost`, as many
steps as places), so log p(answer) = sum over places of log p(token | prompt, tokens to its left,
the rest hidden), exactly and without a term for the choice of places. The rest is `grpo`.

Reason. A sampler that may choose its order puts off the places at which it is unsure, and with them
the branches that exploration needs; and the probability of an answer over all orders can only be
bounded. In one fixed order it is a product.

Source. Ni et al. 2026, "The Flexibility Trap: Why Arbitrary Order Limits Reasoning Potential in
Diffusion Language Models", arXiv:2601.15165; the code is github.com/LeapLabTHU/JustGRPO.

Assumption. What is learnt in one order helps in others: a model that is to be sampled in parallel
afterwards is evaluated that way in a run of its own (`plumbline eval` with another sampling
distribution).

Edge case. An answer ends at its first end token, and the places behind it are neither drawn nor
scored. A step that filled several places would draw them independently of each other, which is
another sampling distribution, so it is refused.
"""

from typing import Literal

from plumbline.algorithms.grpo import Grpo
from plumbline.records import Sampling


class JustGrpo(Grpo):
    """GRPO of a masked model in autoregressive order."""

    families = ("masked",)
    name: Literal["just_grpo"] = "just_grpo"  # type: ignore[assignment]

    def check(self, sampling: Sampling) -> None:
        """See `Algorithm.check`."""
        super().check(sampling)
        if (
            getattr(sampling, "selector", None) != "leftmost"
            or sampling.most_steps != sampling.max_tokens
        ):
            raise ValueError(
                "rl.algorithm: just_grpo needs a masked model, sampling.selector: leftmost and a "
                "step for each place "
                f"(sampling.steps: {sampling.max_tokens}, which is sampling.max_tokens)"
            )
