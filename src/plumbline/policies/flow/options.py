"""What the flow family reads of a recipe."""

from dataclasses import dataclass
from typing import Literal

from plumbline.policies.options import SOME_STEPS, STEPS, DenoisingModel
from plumbline.recipe import FamilyOptions
from plumbline.records import SteppedSampling

Kernel = Literal["conditional", "marginal"]
"""How a step jumps (see `kernels`)."""


class FlowModel(DenoisingModel):
    """Its `model` section."""

    family: str = "flow"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSampling(SteppedSampling):
    """Its sampling law."""

    kernel: Kernel = "conditional"


OPTIONS = FamilyOptions(
    model=FlowModel,
    sampling=FlowSampling,
    reads=STEPS | SOME_STEPS,
    policy="plumbline.policies.flow.policy:FlowPolicy",
)
