"""Arms that train: a recipe with some keys set otherwise, run from each seed's own start, and
measured."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from plumbline.algorithms import ALGORITHMS
from plumbline.algorithms.grpo import Grpo
from plumbline.evaluation.models import evaluate_model
from plumbline.policies.opening import ModelOptions
from plumbline.recipe import Recipe, load_recipe
from plumbline.records import Evaluation
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.record import STAGES, RunRecord
from plumbline.runs.run import Observer
from plumbline.tasks import open_task
from plumbline.training.pipeline import run_recipe

HERE = Path(__file__).parent
BLOCKS = 12
"""Points of a curve: each is the mean over so large a part of the run."""


@dataclass(frozen=True, slots=True)
class Base:
    """What arms are laid over: a recipe, and what makes of it each family's start."""

    recipe: str
    families: Mapping[str, Mapping[str, Any]]


class Divided(Grpo):
    """GRPO whose loss is divided by a number more, as the forms log's was by its 64 steps x 4
    answers."""

    name: Literal["divided"] = "divided"  # type: ignore[assignment]
    divisor: float = 256.0

    def weights(self, lengths: Sequence[int], counted: Sequence[bool], max_tokens: int) -> Any:
        return super().weights(lengths, counted, max_tokens) / self.divisor


def know_divided() -> None:
    """Let recipes of this process name it."""
    ALGORITHMS["divided"] = Divided


@contextmanager
def optimiser(name: str) -> Iterator[None]:
    """Train with plain SGD in the place of AdamW; the package itself has no other than AdamW."""
    if name == "adamw":
        yield
        return
    import torch

    from plumbline.training import rl
    from plumbline.training.optimiser import Optimiser

    class Sgd(Optimiser):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.adam = torch.optim.SGD(list(self.masters.values()), lr=self.section.learning_rate)  # type: ignore[assignment]

    rl.Optimiser = Sgd  # type: ignore[misc]
    try:
        yield
    finally:
        rl.Optimiser = Optimiser  # type: ignore[misc]


def written(values: Mapping[str, Any]) -> list[str]:
    return [
        f"{key}={yaml.safe_dump(value, default_flow_style=True).strip()}"
        for key, value in values.items()
    ]


def start(base: Base, family: str, seed: int, folder: Path, over: Mapping[str, Any]) -> RunRecord:
    """The model that a seed's arms begin with: pretrained and spoilt by SFT, no GRPO yet."""
    return run(
        load_recipe(
            base.recipe, written({**base.families[family], **over, "seed": seed, "rl": None})
        ),
        folder,
    )


def arm(
    base: Base, values: Mapping[str, Any], seed: int, folder: Path, over: Mapping[str, Any]
) -> RunRecord:
    """A finished run of an arm; taken as it is where one of the same recipe is there.

    Args:
        base: what it is laid over.
        values: an arm of the declaration: keys of a recipe, and `family`, `optimiser`, `alone` (no
            GRPO: the start itself with these keys).
        seed: of everything.
        folder: of all runs.
        over: keys that are set for starts and arms alike, whatever they say themselves.
    """
    keys = dict(values)
    family, how, alone = (
        keys.pop("family", "autoregressive"),
        keys.pop("optimiser", "adamw"),
        keys.pop("alone", False),
    )
    if alone:
        recipe = load_recipe(
            base.recipe,
            written({**base.families[family], **keys, **over, "seed": seed, "rl": None}),
        )
    else:
        from_ = folder / f"start-{family}-{seed}"
        model = start(
            base,
            family,
            seed,
            from_,
            {key: value for key, value in over.items() if key[:3] != "rl."},
        )
        given = {
            "model.name": str(model.model("sft")),
            "model.tiny": None,
            "sft": None,
            "seed": seed,
        }
        recipe = load_recipe(
            base.recipe, written({**base.families[family], **keys, **over, **given})
        )
    with optimiser(how):
        return run(recipe, folder / f"arm-{recipe.identity()}-{how}")


def run(recipe: Recipe, folder: Path) -> RunRecord:
    if (folder / "result.json").is_file() and RunRecord.read(
        folder
    ).recipe.identity() == recipe.identity():
        return RunRecord.read(folder)
    begun = (folder / "recipe.yaml").is_file() and RunRecord.read(
        folder
    ).recipe.identity() == recipe.identity()
    return run_recipe(recipe, folder, resume=begun)


# -- measures --------------------------------------------------------------------------------------


def final(run: RunRecord, mode: str, stage: str | None = None) -> Evaluation:
    found = run.evaluations()
    last = stage or [one for one in STAGES if EvaluationKey(one, "test", mode) in found][-1]
    return found[EvaluationKey(last, "test", mode)]


def of_part(evaluation: Evaluation, part: str) -> float:
    """The mean of a part; of a task without it, of the reward."""
    return float(np.mean([row.parts.get(part, row.reward) for row in evaluation.rows]))


def steps(run: RunRecord, key: str) -> list[float]:
    return [float(row[key]) for row in run.rows("rl") if row.get(key) is not None]


def on_seen(run: RunRecord) -> float:
    """The greedy share right on prompts that the model was trained on."""
    assert run.recipe.task is not None
    task = open_task(run.recipe.task.name, run.recipe.task.options, run.folder / "seen")
    examples = task.examples("train")[: len(task.examples("test"))]
    options = ModelOptions(allow_overlap=True)
    model = str(run.model("sft"))
    return of_part(evaluate_model(model, task, examples, "train", options, Observer()), "share")


MEASURES: dict[str, tuple[str, Callable[[RunRecord], float]]] = {
    "greedy": ("greedy", lambda run: of_part(final(run, "greedy"), "share")),
    "sampled": ("sampled", lambda run: of_part(final(run, "sampled"), "share")),
    "exact": ("all right, sampled", lambda run: of_part(final(run, "sampled"), "exact")),
    "form": ("right length, sampled", lambda run: of_part(final(run, "sampled"), "form")),
    "before_sampled": (
        "sampled before GRPO",
        lambda run: of_part(final(run, "sampled", "base"), "share"),
    ),
    "zero_std": (
        "groups without signal",
        lambda run: float(np.mean(steps(run, "train/frac_reward_zero_std"))),
    ),
    "grad_norm": ("gradient norm", lambda run: float(np.mean(steps(run, "train/grad_norm")))),
    "gap": ("sampler-scorer gap, nats", lambda run: steps(run, "train/sampler_scorer_gap")[0]),
    "reward": ("reward trained on, last tenth", lambda run: last(steps(run, "train/reward"))),
    "seen": ("greedy on prompts trained on", on_seen),
}


def last(values: Sequence[float]) -> float:
    return float(np.mean(values[-max(1, len(values) // 10) :]))


def curve(run: RunRecord) -> dict[str, list[float]]:
    """What answers in training earn for their content (or in all), as means of equal parts of the
    run."""
    parts = np.array_split(
        np.array(steps(run, "train/reward/share") or steps(run, "train/reward")), BLOCKS
    )
    ends = np.cumsum([len(part) for part in parts])
    return {
        "steps": [float(end) for end in ends],
        "values": [float(part.mean()) for part in parts if len(part)],
    }
