"""Keys of a recipe that only some families of models read.

Each key has one place in the recipe, whatever the family, so a key that the family does not read would be passed over
in silence: a selector for an autoregressive model, a kernel for a masked one.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from plumbline.errors import RecipeError
from plumbline.recipe.sections import Recipe
from plumbline.section import Section

CANVAS = ("masked", "slots", "flow")
READERS: Mapping[str, tuple[str, ...]] = {
    "model.lora": ("autoregressive", "masked", "slots"),
    "model.quantize": ("autoregressive", "masked", "slots"),
    "model.gradient_checkpointing": ("autoregressive", "masked", "slots"),
    "model.decoder": ("autoregressive",),
    "model.scoring": ("autoregressive",),
    "model.canvas": CANVAS,
    "model.attention": ("masked", "flow"),
    "model.explore": ("masked", "flow"),
    "model.slot": ("slots",),
    "sampling.steps": CANVAS,
    "sampling.blocks": ("masked", "slots"),
    "sampling.selector": ("masked", "slots"),
    "sampling.position_temperature": ("masked", "slots"),
    "sampling.threshold": ("masked", "slots"),
    "sampling.kernel": ("flow",),
    "evaluation.steps": CANVAS,
    "rl.algorithm.keep": ("masked", "flow"),
    "rl.algorithm.pick": ("masked", "flow"),
    "controls.tokens_only": ("masked", "slots"),
    "rl.kl": CANVAS,
    "rl.credit": ("autoregressive",),
}
"""Which families read a key; the others have its default and nothing else."""


def check_family(recipe: Recipe) -> None:
    """Refuse what the recipe's family would pass over. A family of one's own (`module:Class`) may read any key.

    Raises:
        RecipeError: names the keys, and the families that read them.
    """
    family = recipe.model.family
    if family not in {name for names in READERS.values() for name in names}:
        return
    foreign = [
        f"{key}: {value} is read by {' and '.join(names)}"
        for key, names in READERS.items()
        if family not in names
        for value in _set(recipe, key)
    ]
    algorithm = recipe.rl.algorithm if recipe.rl is not None else None
    if algorithm is not None and algorithm.families and family not in algorithm.families:
        foreign.append(f"rl.algorithm: {algorithm.name} is for {' and '.join(algorithm.families)}")
    if foreign:
        raise RecipeError(
            f"{recipe.name} is of family {family}, but {'; '.join(foreign)}", "leave it out, or set model.family"
        )


def _set(recipe: Recipe, key: str) -> Iterator[Any]:
    """The value at a key, where its section is there and it is not the default."""
    *sections, name = key.split(".")
    inner: Any = recipe
    for section in sections:
        inner = getattr(inner, section, None)
    if isinstance(inner, Section) and name in type(inner).model_fields:
        value = getattr(inner, name)
        if value != type(inner).model_fields[name].default:
            yield value
