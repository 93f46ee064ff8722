"""What the flow family reads of a recipe."""

from dataclasses import dataclass
from typing import Literal

from plumbline.config.section import PositiveInt
from plumbline.policies.options import SOME_STEPS, STEPS, DenoisingModel, PretrainedModel
from plumbline.recipe import FamilyOptions
from plumbline.records import SteppedSampling

Kernel = Literal["conditional", "marginal"]
"""How a step jumps (see `sampler`)."""


class FlowModel(PretrainedModel, DenoisingModel):
    """Its `model` section: of a flow network (FS-DFM), or of a causal model that becomes one
    (`TimedBackbone`)."""

    family: str = "flow"
    conditioning: PositiveInt = 64
    """Of a causal model: the size of the vector that tells it the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSampling(SteppedSampling):
    """Its sampling distribution."""

    kernel: Kernel = "conditional"
    """How a step jumps."""


OPTIONS = FamilyOptions(
    model=FlowModel,
    sampling=FlowSampling,
    reads=STEPS | SOME_STEPS,
    policy="plumbline.policies.flow.policy:FlowPolicy",
)
