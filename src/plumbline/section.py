"""A closed set of keys: the base of every part of a recipe and of everything that has options, and its errors."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from plumbline.errors import RecipeError

PositiveInt = Annotated[int, Field(gt=0)]
ALL_KEYS = "`plumbline recipe NAME` prints all keys"
WHOLE = "recipe: "
"""Before what is wrong with no single key."""


class Section(BaseModel):
    """A part of a recipe: frozen, and closed to keys that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _flags_are_no_numbers(cls, values: Any) -> Any:
        """YAML reads yes and on as true, which Python would take for 1."""
        for name, value in values.items() if isinstance(values, dict) else ():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field is not None and not _takes_flags(field.annotation):
                raise ValueError(f"{name} is {str(value).lower()}, where a number or a text is meant")
        return values

    @classmethod
    def inside(cls, values: Any) -> Self:
        """The section out of plain values that stand inside another one.

        Raises:
            ValueError: names every wrong key, with the nearest right one.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ValueError("; ".join(p.removeprefix(WHOLE) for p in _problems(error, cls, ""))) from error


def _takes_flags(annotation: Any) -> bool:
    return annotation is bool or any(map(_takes_flags, get_args(annotation)))


S = TypeVar("S", bound=Section)


def section(kind: type[S], values: Mapping[str, Any], name: str = "", *, inside: str = "", advice: str = ALL_KEYS) -> S:
    """Check the plain values of one section and type them.

    Args:
        kind: of the section.
        values: by key.
        name: what an error calls the place that they are from; empty where the keys say enough.
        inside: the path of the section in a recipe, such as "task.options.", for errors.
        advice: what an error tells to do.

    Raises:
        RecipeError: names every wrong key, with the nearest right one.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        said = "; ".join(_problems(error, kind, inside))
        raise RecipeError(f"{name}: {said}" if name else said, advice) from error


def _problems(error: ValidationError, kind: type[Section], inside: str) -> Iterator[str]:
    for problem in error.errors():
        where = (inside + ".".join(str(part) for part in problem["loc"])).removesuffix(".")
        if problem["type"] == "extra_forbidden":
            known = _keys_at(kind, problem["loc"][:-1])
            close = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1, cutoff=0.5)
            yield f"unknown key {where}" + (f" (did you mean {close[0]}?)" if close else "")
        else:
            yield (f"{where}: " if where else WHOLE) + problem["msg"].removeprefix("Value error, ")


def _keys_at(kind: type[Section], location: Sequence[int | str]) -> list[str]:
    """The keys that the section at this location knows."""
    found: Any = kind
    for part in location:
        field = found.model_fields.get(str(part))
        if field is None:
            return []
        arguments = [field.annotation, *getattr(field.annotation, "__args__", ())]
        found = next((a for a in arguments if isinstance(a, type) and issubclass(a, Section)), None)
        if found is None:
            return []
    return list(found.model_fields)
