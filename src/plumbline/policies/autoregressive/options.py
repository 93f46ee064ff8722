"""What the autoregressive family reads of a recipe."""

from typing import ClassVar, Literal

from plumbline.policies.options import PretrainedModel
from plumbline.recipe import FamilyOptions


class AutoregressiveModel(PretrainedModel):
    """Its `model` section."""

    how: ClassVar[frozenset[str]] = PretrainedModel.how | {"decoder", "scoring"}

    family: str = "autoregressive"
    decoder: Literal["auto", "lean", "transformers"] = "auto"
    """Who decodes: our own one-token forward, or the model's. auto: ours where it was checked equal
    at loading."""
    scoring: Literal["auto", "packed", "rows"] = "auto"
    """How a group is scored: packed behind one copy of its prompt, or in padded rows."""


OPTIONS = FamilyOptions(
    model=AutoregressiveModel,
    reads=frozenset({"rl.kl"}),
    can=frozenset({"compare", "encode"}),
    policy="plumbline.policies.autoregressive.policy:AutoregressivePolicy",
)
