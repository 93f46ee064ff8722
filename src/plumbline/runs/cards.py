"""What a model directory that Plumbline wrote says about itself: `plumbline.json`, beside the weights.

It names the task and the options that rebuild its records, and the fingerprints of every prompt that the weights were
trained on, in this run or before it; an evaluation on one of those prompts is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from plumbline.errors import DataError
from plumbline.storage import read_json

CARD = "plumbline.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Where a model came from."""

    recipe: str
    """The recipe's name and identity."""
    stage: str
    task: str
    options: Mapping[str, Any]
    """The task's options, which rebuild its records."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """The recipe's model section, as far as it decides what the weights score (family, canvas, quantize, dtype ...)."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """The law that evaluations drew by (`Sampling`'s fields)."""
    trained_on: frozenset[str] = field(default_factory=frozenset)
    """Fingerprints of the prompts (`Example.fingerprint`)."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; the fingerprints as one string, which is a quarter of the size of a list."""
        return {**asdict(self), "trained_on": " ".join(sorted(self.trained_on))}

    @classmethod
    def read(cls, model: str | Path) -> Self | None:
        """The card of a model directory; None for a model from elsewhere.

        Raises:
            DataError: there is one, but it is damaged.
        """
        path = Path(model) / CARD
        if not path.is_file():
            return None
        values = read_json(path)
        try:
            return cls(**{**values, "trained_on": frozenset(values["trained_on"].split())})
        except (TypeError, KeyError, AttributeError) as error:
            raise DataError(
                f"{path} is damaged: {error}", "remove it to treat the model as one from elsewhere"
            ) from error


def trained_on(model: str | Path, prompts: Iterable[str]) -> frozenset[str]:
    """The fingerprints that the model at `model` was trained on already, and those of further prompts."""
    card = Card.read(model)
    return frozenset(prompts) | (card.trained_on if card is not None else frozenset())
