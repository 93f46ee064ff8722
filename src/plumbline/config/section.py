"""A closed set of keys: the base of every part of a recipe and of everything that has options, and
its errors."""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Self, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from plumbline.errors import PlumblineError, RecipeError

PositiveInt = Annotated[int, Field(gt=0)]
ALL_KEYS = "`plumbline recipe NAME` prints all keys"


class Section(BaseModel):
    """A part of a recipe: frozen, and closed to keys that it does not know."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=()
    )

    @model_validator(mode="before")
    @classmethod
    def _flags_are_no_numbers(cls, values: Any) -> Any:
        """YAML reads yes and on as true, which Python would take for 1."""
        return no_flags(values, key_types(cls))

    @classmethod
    def inside(cls, values: Any) -> Self:
        """The section out of plain values that stand inside another one.

        Raises:
            ValueError: names every wrong key, with the nearest right one.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ValueError("; ".join(_problems(error, cls, ""))) from error


def no_flags(values: Any, types: Mapping[str, Any]) -> Any:
    """The values, of which none is a flag unless its type says so.

    Raises:
        ValueError: one is.
    """
    for name, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, bool) and name in types and not _takes_flags(types[name]):
            raise ValueError(f"{name} is {str(value).lower()}, where a number or a text is meant")
    return values


def _takes_flags(annotation: Any) -> bool:
    return annotation is bool or any(map(_takes_flags, get_args(annotation)))


S = TypeVar("S")
Hint = Callable[[str], str]


def section(
    kind: type[S],
    values: Mapping[str, Any],
    name: str = "",
    *,
    inside: str = "",
    advice: str = ALL_KEYS,
    hint: Hint | None = None,
) -> S:
    """Check the plain values of one section, or of a sampling distribution, and type them.

    Args:
        kind: a `Section`, or a frozen dataclass.
        values: by key.
        name: what an error calls the place that they are from; empty where the keys say enough.
        inside: the path of the section in a recipe, such as "task.options.", for errors.
        advice: what an error tells to do.
        hint: from the path of an unknown key, what there is to say of it; empty where it is unknown
            to all.

    Raises:
        RecipeError: names every wrong key, with the nearest right one.
    """
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        for problem in error.errors():
            if isinstance(ours := problem.get("ctx", {}).get("error"), PlumblineError):
                raise ours from error  # it has a fix of its own
        said = "; ".join(_problems(error, kind, inside, hint))
        raise RecipeError(f"{name}: {said}" if name else said, advice) from error


def _problems(
    error: ValidationError, kind: type, inside: str, hint: Hint | None = None
) -> Iterator[str]:
    for problem in error.errors():
        where = (inside + ".".join(str(part) for part in problem["loc"])).removesuffix(".")
        if problem["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
            if hint is not None and (said := hint(where)):
                yield said
                continue
            known = _keys_at(kind, problem["loc"][:-1])
            close = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1, cutoff=0.5)
            yield f"unknown key {where}" + (f" (did you mean {close[0]}?)" if close else "")
        else:
            yield (f"{where}: " if where else "") + problem["msg"].removeprefix("Value error, ")


def _keys_at(kind: type, location: Sequence[int | str]) -> list[str]:
    """The keys that the section at this location knows."""
    found: Any = kind
    for part in location:
        annotation = key_types(found).get(str(part))
        # a key of a mapping, or a place in a list, whose values are of this kind
        if annotation is None:
            continue
        parts = [annotation, *get_args(annotation)]
        found = next((one for one in parts if key_types(one)), None)
    return list(key_types(found))


def key_types(kind: Any) -> dict[str, Any]:
    """The types of a section's keys, or of a dataclass's; empty for anything else."""
    if isinstance(kind, type) and issubclass(kind, Section):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    if not isinstance(kind, type) or not is_dataclass(kind):
        return {}
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
