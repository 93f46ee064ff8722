"""Options that several families share; each family's own stand in its package, in `options.py`,
with what it declares.

Nothing here imports torch: a recipe is checked before a model is thought of.
"""

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from plumbline.config.section import PositiveInt
from plumbline.recipe import LoraSection, ModelSection, Recipe

STEPS = frozenset({"evaluation.steps", "rl.kl"})
"""Keys outside of `model` and `sampling` that families of several steps read."""
SOME_STEPS = frozenset({"rl.algorithm.keep", "rl.algorithm.pick"})
"""Those that families read whose steps are scored one at a time."""


class PretrainedModel(ModelSection):
    """Of a transformers model."""

    how: ClassVar[frozenset[str]] = ModelSection.how | {"gradient_checkpointing"}

    lora: LoraSection | None = None
    """None trains every weight."""
    quantize: Literal["4bit"] | None = None
    """Keep the frozen weights in 4 bits; needs `lora`."""
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    """Compute layers a second time in the backward pass, which takes a third more time and far less
    memory. auto: from where the memory is not enough otherwise."""

    @model_validator(mode="after")
    def _adapters_on_few_bits(self) -> Self:
        if self.quantize and self.lora is None:
            raise ValueError(
                "4-bit weights cannot be trained themselves: set model.lora, for example {rank: 16}"
            )
        return self


class CanvasModel(ModelSection):
    """Of a model that writes its answer into a fixed number of places."""

    canvas: PositiveInt | None = None
    """Places for an answer; None takes `sampling.max_tokens`."""


class HidingModel(CanvasModel):
    """Of a model whose empty places hold a mask."""

    mask_token: str | None = None
    """A token of the tokenizer's that no text has, for a model whose tokenizer and config name no
    mask: so any causal model is one with a mask, with every weight as it is."""


class DenoisingModel(CanvasModel):
    """Of a model that fills its canvas over a denoising time."""

    attention: Literal["full", "prefix"] = "full"
    """Whether the prompt sees the answer (as LLaDA and Dream do), or is read once and kept."""
    learned_temperature: bool = False
    """Learn a temperature for each stretch of the denoising time (ReinFlow's learnt noise)."""


def model_section(recipe: Recipe) -> ModelSection:
    """The recipe's model section with the canvas that its sampling distribution fills."""
    model = recipe.model
    if isinstance(model, CanvasModel) and model.canvas is None:
        return model.model_copy(update={"canvas": recipe.sampling.max_tokens})
    return model
