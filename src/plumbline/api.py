"""Plumbline from Python: what the commands do, and the laws that a test holds any policy and any
task to.

`import plumbline` has most of these names and loads them late. Each law has a negative control in
the test suite that must fail.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plumbline import recipe as recipes
from plumbline import tasks
from plumbline.checks.audit.scoring_runner import (
    ScoringRunner,
    mean_reward,
)
from plumbline.checks.audit.trial import judge_references
from plumbline.checks.preflight.report import DryRun
from plumbline.checks.preflight.report import dry_run as look_ahead
from plumbline.checks.refusals import check_recipe
from plumbline.config.imports import consent, import_named, note_typed
from plumbline.errors import RecipeError
from plumbline.evaluation.models import check_name, evaluate_model
from plumbline.policies.opening import ModelOptions
from plumbline.policies.policy import Policy, Sampler
from plumbline.recipe import Recipe, section
from plumbline.records import Evaluation, Example, Message, Request, Sampling, Trajectory
from plumbline.rollouts.collect import collect
from plumbline.runs.observers import LiveView, open_trackers
from plumbline.runs.record import RunRecord
from plumbline.runs.remote import folder_for, is_address, join_address, local_model
from plumbline.runs.remote_sync import open_remote_run
from plumbline.runs.run import Observer
from plumbline.tasks.cases import HOSTILE
from plumbline.tasks.task import Task, as_task
from plumbline.training.pipeline import run_recipe


def run(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    overrides: Sequence[str] = (),
    out: str | Path | None = None,
    resume: bool = False,
    quiet: bool = False,
    trust_code: bool = False,
) -> RunRecord:
    """Train and evaluate as a recipe says, and write the run and its report (`plumbline run`).

    Args:
        recipe: a file, the name of a bundled recipe, its keys as a mapping, or what `load_recipe`
            gave. In a mapping a scoring function of the task jsonl may be given itself.
        overrides: `a.b=value` each, for a file or a name.
        out: the run directory, or an address (docs/cluster.md); None is NAME, after the recipe, in
            `run.folder`.
        resume: go on with a run that was stopped.
        quiet: show no progress on standard error.
        trust_code: run code that a recipe's file names (as `module:name`) and that `overrides` do
            not.

    Returns:
        The finished run: `.result()` has its figures, `.folder` its `report.html`, `.model("rl")`
            the model's folder.

    Raises:
        PlumblineError: what is wrong, and what to do.
    """
    view = LiveView()
    observers: list[Observer] = [] if quiet else [view]
    with ExitStack() as opened:
        opened.enter_context(consent(everything=trust_code))
        loaded, place = _load_with_folder(recipe, overrides, out)
        folder = folder_for(place)
        if is_address(place):
            if not resume:
                check_recipe(loaded)  # before anything is written to the address
            tell = Observer() if quiet else view
            kept = open_remote_run(
                place, resume=resume, tell=lambda message: tell.event("note", message)
            )
            folder, sync = opened.enter_context(kept)
            observers.append(sync)
        elif loaded.run.trackers and not resume:
            # the run does so itself, but after a tracker has written into the folder
            check_recipe(loaded)
        trackers = open_trackers(loaded, folder, lambda message: view.event("tracker", message))
        done = run_recipe(loaded, folder, resume=resume, observers=[*observers, *trackers])
        return done.record()


def dry_run(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    overrides: Sequence[str] = (),
    out: str | Path | None = None,
    resume: bool = False,
    trust_code: bool = False,
) -> DryRun:
    """What `run` would do and need with these arguments, and what is wrong with it
    (`plumbline run --dry-run`).

    Raises:
        PlumblineError: the recipe cannot be read; all else that is wrong is in `.findings`.
    """
    with consent(everything=trust_code):
        loaded, place = _load_with_folder(recipe, overrides, out)
        return look_ahead(loaded, folder_for(place), resume=resume)


def _load_with_folder(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    overrides: Sequence[str],
    out: str | Path | None,
) -> tuple[Recipe, str]:
    """The recipe, and the run's directory or address."""
    if isinstance(recipe, Recipe | Mapping) and overrides:
        raise RecipeError("overrides are for recipes in files", "change the recipe itself")
    note_typed(overrides)
    if isinstance(recipe, Mapping):
        recipe = recipes.parse_recipe(_name_functions(recipe))
    elif isinstance(recipe, Recipe) and ":" in recipe.model.family:
        # what its family reads may have been unchecked when it was loaded
        recipe = recipes.parse_recipe(recipe.to_dict())
    loaded = recipe if isinstance(recipe, Recipe) else recipes.load_recipe(recipe, overrides)
    return loaded, str(out) if out is not None else join_address(loaded.run.folder, loaded.name)


def open_task(name: str, *, folder: str | Path | None = None, **options: Any) -> Task:
    """Open a task with its options, as a recipe's `task` does.

    Args:
        name: see `plumbline.tasks.task_names`, or `module:opener`.
        folder: where it may build its records; None is `data/NAME`.
        options: the task's own. A scoring function of the task jsonl may be given itself.

    Raises:
        RecipeError: no such task, or an option that it does not know.
        DataError: its records are missing or malformed.
    """
    note_typed([name])
    place = Path(folder) if folder is not None else Path("data") / name
    return tasks.open_task(name, _name_functions(options), place)


def evaluate(
    source: str | Path | RunRecord,
    task: Task,
    *,
    split: str = "test",
    limit: int | None = None,
    trust_code: bool = False,
    **options: Any,
) -> Evaluation:
    """Evaluate a model, the oracle or a baseline on a fixed split (`plumbline eval`).

    Args:
        source: a model (directory, GGUF file, address, hub name), `oracle`, a baseline's name, or a
            finished run, whose last model is meant.
        task: what it is asked.
        split: train, val, test, or another one of the task.
        limit: only the first so many examples.
        trust_code: run code that the model's directory names (a family of models as
            `module:Class`).
        options: how a model is opened and asked, as `plumbline eval` has it: temperature (0, the
            default, is greedy decoding), seed (of sampled answers), max_tokens and steps (what the
            model's own run evaluated with), device, dtype, rows_at_once, family, chat_template,
            allow_overlap (with prompts that it was trained on), engine (vllm, or an endpoint's
            address).

    Returns:
        The judged answers; `.mean_reward` is their mean.

    Raises:
        RecipeError: the run is not finished; a misspelt baseline; an option that there is not, or of
            a wrong value.
        DataError: the model was trained on some of these prompts; no such split.
        ModelError: there is no such model.
    """
    task = as_task(task)
    how = section(
        ModelOptions, options, "evaluate", advice="help(plumbline.evaluate) names all options"
    )
    if isinstance(source, RunRecord):
        result = source.result()
        if result is None:
            raise RecipeError(
                f"the run {source.folder} is not finished", "resume it: run(..., resume=True)"
            )
        source = str(result["model"])
    source = local_model(str(source))
    with consent(everything=trust_code):
        note_typed([how.family or ""])
        check_name(source, task, how)
        return evaluate_model(source, task, task.examples(split)[:limit], split, how, Observer())


def _name_functions(values: Any) -> Any:
    """Values with every function in them as `module:name`, which a recipe can keep; all of them are
    the user's."""
    if isinstance(values, Mapping):
        note_typed(f"{key}={value}" for key, value in values.items())
        return {key: _name_functions(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_name_functions(value) for value in values]
    return _name_of(values) if callable(values) else values


def _name_of(function: Callable[..., Any]) -> str:
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    note_typed([name])
    if not name.rpartition(":")[2].isidentifier() or import_named(name, "function") is not function:
        raise RecipeError(
            f"{name} cannot be found again by its name",
            "define it with def at the top of a module, script or notebook",
        )
    return name


@dataclass(frozen=True, slots=True)
class PolicyLaws:
    """What `check_policy` measured."""

    gap: float
    """Law 1: the largest |scored - recorded| log-probability of a choice [nats]."""
    chi_square_p: float
    """Law 2: how likely draws of the declared distribution are to miss it by this much."""
    mass: float
    """Sum of the declared probabilities of all distinct trajectories that were drawn: at most 1
    under a true distribution."""
    kinds: int
    """Distinct trajectories drawn."""


def sample_trajectories(
    sampler: Sampler,
    prompts: Sequence[Sequence[Message]],
    copies: int,
    sampling: Sampling,
    seed: int,
) -> list[list[Trajectory]]:
    """Trajectories in the order of the prompts, `copies` of each, for tests and benchmarks."""
    requests = [
        Request((seed, prompt, copy), messages, sampling)
        for prompt, messages in enumerate(prompts)
        for copy in range(copies)
    ]
    drawn = {request.key: trajectory for request, trajectory in sampler.sample(requests)}
    return [[drawn[seed, prompt, copy] for copy in range(copies)] for prompt in range(len(prompts))]


def check_policy(
    policy: Policy,
    messages: Sequence[Message],
    sampling: Sampling,
    *,
    draws: int = 20_000,
    seed: int = 0,
) -> PolicyLaws:
    """Measure both laws of a policy by drawing many trajectories for one prompt.

    Law 1 alone passes for a sampler that is wrong in the same way as its scorer; law 2 compares how
    often each trajectory came with the probability that the scorer gives it. Choose a prompt and
    limits for which the distinct trajectories are few (tens to hundreds), or the counts say
    nothing.

    Args:
        policy: any family.
        messages: the prompt.
        sampling: the distribution to test.
        draws: trajectories.
        seed: of the sampler.
    """
    (trajectories,) = sample_trajectories(policy, [messages], draws, sampling, seed)
    return _measure_laws(policy, [(trajectory,) for trajectory in trajectories])


def check_episodes(
    policy: Policy,
    task: Task,
    example: Example,
    sampling: Sampling,
    *,
    draws: int = 20_000,
    seed: int = 0,
) -> PolicyLaws:
    """Measure both laws over whole episodes of a task with one example; see `check_policy`.

    The probability of an episode is the product over its turns, each at the prompt that the turns
    before it led to.
    """
    (group,) = collect(policy, task, [example], copies=draws, sampling=sampling, key=(seed,))
    return _measure_laws(policy, [rollout.turns for rollout in group.rollouts])


def _measure_laws(policy: Policy, drawn: Sequence[Sequence[Trajectory]]) -> PolicyLaws:
    draws = len(drawn)
    counts = Counter(map(_key, drawn))
    one_of_each = list({_key(turns): turns for turns in drawn}.values())
    episode = np.array([number for number, turns in enumerate(one_of_each) for _ in turns])
    scored = policy.score([turn for turns in one_of_each for turn in turns])
    logprobs, owner = scored.logprobs.detach().double().cpu().numpy(), scored.owner.cpu().numpy()
    totals = np.bincount(episode[owner], weights=logprobs, minlength=len(one_of_each))
    probabilities = np.exp(totals)
    observed = np.array([counts[_key(turns)] for turns in one_of_each], dtype=np.float64)
    gap = float((scored.logprobs.detach() - scored.recorded).abs().max())
    return PolicyLaws(
        gap=gap,
        chi_square_p=_chi_square_p_value(observed, probabilities * draws, draws),
        mass=float(probabilities.sum()),
        kinds=len(one_of_each),
    )


def _key(turns: Sequence[Trajectory]) -> bytes:
    return b"/".join(
        b"|".join(
            step.positions.tobytes() + b":" + step.tokens.tobytes() for step in turn.transitions
        )
        for turn in turns
    )


def _chi_square_p_value(observed: np.ndarray, expected: np.ndarray, draws: int) -> float:
    """Upper tail of Pearson's statistic; kinds expected fewer than 5 times are pooled, with those
    never drawn."""
    often = expected >= 5
    counts = np.append(observed[often], observed[~often].sum())
    means = np.append(expected[often], max(draws - expected[often].sum(), 1e-9))
    if means[-1] < 5:  # a remainder too small to be a cell of its own
        counts, means = (
            np.append(counts[:-2], counts[-2:].sum()),
            np.append(means[:-2], means[-2:].sum()),
        )
    statistic = float(((counts - means) ** 2 / means).sum())
    return _chi_square_upper_tail(statistic, len(counts) - 1)


def _chi_square_upper_tail(statistic: float, degrees: int) -> float:
    """P(chi-square > statistic), by Wilson and Hilferty's cube root (1931); within 1e-3 for 3
    degrees or more."""
    if degrees < 1:
        return 1.0
    z = ((statistic / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / math.sqrt(2 / (9 * degrees))
    return 0.5 * math.erfc(z / math.sqrt(2))


@dataclass(frozen=True, slots=True)
class TaskLaws:
    """What `check_task` measured on one split."""

    oracle: float | None
    """The least reward of a gold answer: 1.0; None where there are none."""
    baselines: Mapping[str, float]
    """Mean reward of each baseline."""
    raised: tuple[str, ...]
    """Texts on which the verifier raised: none."""


def check_task(task: Task, split: str, *, hostile: Sequence[str] = HOSTILE) -> TaskLaws:
    """Measure the laws of a task on a split: the oracle, the baselines, and texts that no verifier
    expects."""
    examples = task.examples(split)
    seen = ScoringRunner(as_task(task), tasks.silent)
    judge_references(seen, {split: examples}, (examples[0], examples[-1]), hostile)
    return TaskLaws(
        oracle=min((one.reward for one in seen.golds), default=None),
        baselines={name: mean_reward(found[split]) for name, found in seen.baselines.items()},
        raised=tuple(one.failure for one in seen.all_verdicts if one.failure),
    )
