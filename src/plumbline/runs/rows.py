"""What a row of each of a run's record files must be: what a report takes for granted is checked when it is read."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Share = Annotated[float, Field(ge=0, le=1)]
Step = Annotated[int, Field(ge=0, le=10**15)]
MOST_SECONDS = 1e10
"""Of a step: 300 years."""


class _Row(BaseModel):
    """Further keys are as they may be."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class _Numbers(_Row):
    """A step of a stage, and numbers; null was not computed."""

    __pydantic_extra__: dict[str, float | bool | None] = Field(init=False)
    stage: str
    step: Step

    @model_validator(mode="after")
    def _seconds(self) -> Self:
        """Seconds are summed, and shown as hours."""
        for name, value in self.__pydantic_extra__.items():
            if name.startswith("time/") and value is not None and not 0 <= value <= MOST_SECONDS:
                raise ValueError(f"{name} is {value:.3g}, which are no seconds of a step")
        return self


class _Sample(_Row):
    """A rollout of training."""

    step: Step
    reward: Share | None
    parts: dict[str, Share | None]
    id: str
    text: str
    turns: list[str] = []
    asked: list[str] = []
    how: str


class _Event(_Row):
    """Something that the user should know."""

    kind: str
    message: str


class _Mean(_Row):
    """A mean with its interval."""

    mean: Share
    low: Share
    high: Share
    n: Annotated[int, Field(ge=1, le=10**15)]


class Summary(_Row):
    """What a run's outcome says of one evaluation, as far as others go by it."""

    task: str
    rubric: str
    reward: _Mean
    floor: Share | None = None
    ceiling: Share | None = None


KINDS: Mapping[str, type[_Row]] = {"metrics": _Numbers, "timings": _Numbers, "samples": _Sample, "events": _Event}
"""By the name of the file."""


def checker(name: str) -> Callable[[Mapping[str, Any]], None]:
    """What raises ValueError for a row that the file `name` cannot hold, and says which key is wrong."""
    kind = KINDS[name]

    def check(row: Mapping[str, Any]) -> None:
        try:
            kind.model_validate(row)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"] if part not in {"float", "bool"})  # of a union
            raise ValueError(f"{where}: {first['msg']}") from error

    return check
