"""What the masked-diffusion family reads of a recipe."""

import math
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import model_validator

from plumbline.config.section import PositiveInt
from plumbline.policies.options import (
    SOME_STEPS,
    STEPS,
    DenoisingModel,
    HidingModel,
    PretrainedModel,
)
from plumbline.recipe import FamilyOptions
from plumbline.records import SteppedSampling

Selector = Literal[
    "random",
    "ancestral",
    "leftmost",
    "plackett_luce",
    "plackett_luce_set",
    "threshold",
    "low_confidence",
]
"""How a step chooses the positions that it fills (see `scorer`)."""


class MaskedModel(PretrainedModel, HidingModel, DenoisingModel):
    """Its `model` section."""

    family: str = "masked"
    block: PositiveInt | None = None
    """Tokens of a block, for a model that writes block after block (SDAR): a block sees itself and
    all before it. None takes what its config.json says (block_size), and no blocks where it says
    nothing."""
    predicts_next: bool | None = None
    """Whether a place is predicted at the place before it, as a causal model does (Dream); None: as
    its config says."""

    @model_validator(mode="after")
    def _blocks_of_one_text(self) -> Self:
        if self.block is not None and self.attention == "prefix":
            raise ValueError(
                "attention: prefix keeps the prompt apart, and a block may begin in it: leave one "
                "of both out"
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedSampling(SteppedSampling):
    """Its sampling distribution."""

    blocks: int = 1
    """Parts of the canvas that are filled one after the other, each in an equal share of the steps.
    A model with `block` fills its own blocks one after the other, and leaves this at 1."""
    selector: Selector = "random"
    """How a step chooses the positions that it fills."""
    position_temperature: float = 1.0
    """Of the scores by which a selector chooses positions: small prefers the most confident
    ones."""
    threshold: float = 0.9
    """The confidence from which on the threshold selector fills a position."""

    def __post_init__(self) -> None:
        SteppedSampling.__post_init__(self)
        if not 1 <= self.blocks <= self.max_tokens:
            raise ValueError(
                f"blocks must lie between 1 and max_tokens ({self.max_tokens}), not {self.blocks}"
            )
        if not 0 < self.position_temperature < math.inf:
            raise ValueError(
                f"position_temperature must be above 0, not {self.position_temperature}"
            )
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold must lie in (0, 1), not {self.threshold}")


OPTIONS = FamilyOptions(
    model=MaskedModel,
    sampling=MaskedSampling,
    reads=STEPS | SOME_STEPS,
    can=frozenset({"mask_positions"}),
    policy="plumbline.policies.masked.policy:MaskedPolicy",
)
