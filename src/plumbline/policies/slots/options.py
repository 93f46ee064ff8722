"""What the slots family reads of a recipe."""

from dataclasses import dataclass
from typing import Literal

from plumbline.config.section import PositiveInt
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.options import STEPS, HidingModel, PretrainedModel
from plumbline.recipe import FamilyOptions


class SlotModel(PretrainedModel, HidingModel):
    """Its `model` section."""

    family: str = "slots"
    slot: PositiveInt = 4
    """Tokens of a slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSampling(MaskedSampling):
    """Its sampling distribution: that of masked diffusion with slots for positions, rounds for
    steps, and fewer selectors."""

    selector: Literal["plackett_luce", "random", "threshold"] = "random"


OPTIONS = FamilyOptions(
    model=SlotModel,
    sampling=SlotSampling,
    reads=STEPS,
    policy="plumbline.policies.slots.policy:SlotPolicy",
)
