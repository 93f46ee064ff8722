"""Which keys of a recipe a family of models reads: the family says so itself, in its own package.

`model` and `sampling` have the keys that all families share, and those that the recipe's family
declares in its `FamilyOptions`: ours in `plumbline.policies.FAMILY.options`, which imports no
torch, one of yours as the attribute `options` of its class. A key of another family would be passed
over in silence, so it is an error that names its owner.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache, partial
from keyword import iskeyword
from typing import Any

from pydantic import create_model

from plumbline.config.imports import import_named, import_own, is_allowed
from plumbline.config.section import Section
from plumbline.errors import RecipeError
from plumbline.recipe.sections import ModelSection, Recipe
from plumbline.records import Sampling, Values

FAMILIES = ("autoregressive", "masked", "slots", "flow")
"""The families of `plumbline.policies`; `module:Class` is one of yours."""
ABILITIES: Mapping[str, str] = {
    "compare": "rl.kl: forward, and closed with rl.teacher, are",
    "encode": "rl.teacher.hint and again are",
    "mask_positions": "an rl.algorithm that masks positions of an answer is",
}
"""Methods of a policy that not every family has, and what of a recipe asks for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyOptions:
    """What a family of models reads of a recipe."""

    model: type[ModelSection] = ModelSection
    """The recipe's `model`: a subclass where there are options of the family's own."""
    sampling: type[Sampling] = Sampling
    """The recipe's `sampling`, and the sampling distribution that trajectories carry: likewise a
    frozen dataclass."""
    reads: frozenset[str] = frozenset()
    """Keys of other sections that not every family reads, such as `rl.algorithm.keep`."""
    can: frozenset[str] = frozenset()
    """Those of `ABILITIES` that the family has."""
    policy: str = ""
    """The class as `module:Class`, for a family of ours."""

    def defaults(self) -> Values:
        """Every key of `model` and `sampling` that the family reads, with its path, and its
        default."""
        keys = {f"model.{name}": one.default for name, one in self.model.model_fields.items()}
        return keys | {f"sampling.{one.name}": one.default for one in fields(self.sampling)}


def options_of(family: str) -> FamilyOptions:
    """What a family declares.

    Raises:
        RecipeError: there is no such family, or it declares nothing.
    """
    options: FamilyOptions
    if family in FAMILIES:
        options = import_own(f"plumbline.policies.{family}.options:OPTIONS", "policy family")
        return options
    if not family.partition(":")[2]:
        raise RecipeError(
            f"there is no policy family {family}",
            f"there are {', '.join(FAMILIES)}; yours is module:Class",
        )
    policy = import_named(family, "policy family")
    lacking = "open(section, source, seed)"
    if hasattr(policy, "open"):
        if isinstance(found := getattr(policy, "options", None), FamilyOptions):
            return found
        lacking = "options (a FamilyOptions)"
    raise RecipeError(
        f"{family} is no policy family: it has no {lacking}",
        "see docs/architecture.md for what a family has",
    )


def is_untrusted_family(family: str) -> bool:
    """Whether a family is code that may not be imported, so that nobody can say which options it
    has."""
    return ":" in family and not is_allowed(family)


def options_as_written(model: Mapping[str, Any], sampling: Mapping[str, Any]) -> FamilyOptions:
    """The options of a family that may not be there any more, as a finished run or a saved model
    wrote all of them."""
    family = model.get("family", ModelSection.model_fields["family"].default)
    if family in FAMILIES:
        return options_of(family)
    shared = FamilyOptions().defaults()
    sampling_keys = [key for key in sampling if _is_name(key) and f"sampling.{key}" not in shared]
    keys: Values = {
        key: (Any, model[key]) for key in model if _is_name(key) and f"model.{key}" not in shared
    }
    return FamilyOptions(
        model=create_model("Model", __base__=ModelSection, **keys),
        sampling=make_dataclass(
            "OwnSampling",
            [
                (key, Any, field(default_factory=partial(copy.copy, sampling[key])))
                for key in sampling_keys
            ],
            bases=(Sampling,),
            frozen=True,
            kw_only=True,
        ),
    )


def _is_name(key: Any) -> bool:
    """Whether a family could have such an option; others are unknown keys."""
    return isinstance(key, str) and key.isidentifier() and not iskeyword(key) and key[0] != "_"


def without_foreign(part: str, values: Mapping[str, Any], options: FamilyOptions) -> Values:
    """The values of `model` or `sampling`, less keys of other families that have their default:
    they say nothing.

    So a recipe may extend one of another family, and undo what that family alone reads.
    """
    mine, others = options.defaults(), [options_of(family).defaults() for family in FAMILIES]
    return {
        key: each
        for key, each in values.items()
        if (path := f"{part}.{key}") in mine
        or all(path not in one or one[path] != each for one in others)
    }


@cache
def build_recipe_type(options: FamilyOptions) -> type[Recipe]:
    """The type of a family's recipes: `Recipe` with the family's own keys under `model` and
    `sampling`."""
    kind = create_model(
        "Recipe",
        __base__=Recipe,
        model=(options.model, ...),
        sampling=(options.sampling, options.sampling()),
    )
    kind.foreign = (
        frozenset[str]().union(*(options_of(family).reads for family in FAMILIES)) - options.reads
    )
    return kind


@cache
def list_reading_families(key: str) -> tuple[str, ...]:
    """Those of our families that read a key such as `model.canvas`; nothing where all of them
    do."""
    every = {family: options_of(family) for family in FAMILIES}
    found = tuple(
        family for family, one in every.items() if key in one.reads or key in one.defaults()
    )
    return found if len(found) < len(FAMILIES) else ()


def explain_foreign_key(key: str) -> str:
    """What an error says of an unknown key that other families read; empty where there are none."""
    names = list_reading_families(key)
    return (
        f"{key} is read by {' and '.join(names)} only (leave it out, or set model.family)"
        if names
        else ""
    )


def check_family_keys(recipe: Recipe) -> None:
    """Refuse what the recipe's family would pass over in the sections that all families share.

    Raises:
        RecipeError: names the keys, and the families that read them.
    """
    foreign = [
        f"{key}: {value} is read by {' and '.join(list_reading_families(key) or FAMILIES)}"
        for key in sorted(recipe.foreign)
        for value in _value_unless_default(recipe, key)
    ]
    if (rl := recipe.rl) is not None:
        own = rl.algorithm.families
        if own and recipe.model.family in {*FAMILIES} - {*own}:
            foreign.append(f"rl.algorithm: {rl.algorithm.name} is for {' and '.join(own)}")
        asked = {
            "compare": rl.kl == "forward" or (rl.teacher is not None and rl.kl == "closed"),
            "encode": rl.teacher is not None and rl.teacher.has_hint,
        }
        # a family of a user's own says so itself, where it is asked
        own_kind = recipe.model.family not in FAMILIES
        able = {*asked} if own_kind else options_of(recipe.model.family).can
        lacking = {each for each in asked if asked[each]} - able
        foreign += map(explain_lacking, sorted(lacking))
    if foreign:
        raise foreign_error(recipe.name, recipe.model.family, *foreign)


def explain_lacking(ability: str) -> str:
    """Which families have one of `ABILITIES`."""
    able = [family for family in FAMILIES if ability in options_of(family).can]
    return f"{ABILITIES[ability]} for {' and '.join(able)}"


def foreign_error(name: str, family: str, *foreign: str) -> RecipeError:
    """The refusal of what a recipe, or who calls a policy, asks of a family that has it not."""
    return RecipeError(
        f"{name} is of family {family}, but {'; '.join(foreign)}",
        "leave it out, or set model.family",
    )


def _value_unless_default(recipe: Recipe, key: str) -> Iterator[Any]:
    """The value at a key, where its section is there and it is not the default."""
    *sections, name = key.split(".")
    inner: Any = recipe
    for section in sections:
        inner = getattr(inner, section, None)
    if isinstance(inner, Section) and name in type(inner).model_fields:
        value = getattr(inner, name)
        if value != type(inner).model_fields[name].default:
            yield value
