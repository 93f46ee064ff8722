"""A model by name, evaluated as its own run evaluated it, but for what the command line says."""

import difflib
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from plumbline.engines.vllm_client import check_address
from plumbline.errors import DataError, PlumblineError, RecipeError
from plumbline.evaluation.evaluate import ORACLE, Conditions, evaluate_policy, evaluate_reference
from plumbline.policies.memory import clear_memory_errors
from plumbline.policies.opening import ModelOptions, check_model, open_policy, options_as_trained
from plumbline.policies.policy import Policy, Sampler, slowness
from plumbline.recipe.execution import EngineSection
from plumbline.records import Evaluation, Example, Sampling
from plumbline.rollouts.collect import check_prompts
from plumbline.runs.metadata import ModelMetadata
from plumbline.runs.remote import local_model
from plumbline.runs.run import Listener
from plumbline.tasks import NOWHERE, open_task, task_names
from plumbline.tasks.task import Task


def check_name(model: str, task: Task | None, options: ModelOptions) -> None:
    """Refuse a name that is no model's, before records are built for it and before a hub is asked.

    Args:
        model: its name.
        task: what it is asked; None where nothing says so, and then the baselines of all tasks are
            known.
        options: how it is opened.

    Raises:
        RecipeError: it looks like a misspelt reference, or is a baseline of another task.
        ModelError, DataError: no model can be opened there (see `check_model`).
    """
    baselines = (
        {name for one in task_names() for name in baselines_of(one, {})}
        if task is None
        else set(task.baselines)
    )
    if model == ORACLE or model in baselines:
        return
    if options.is_remote:
        check_address(str(options.engine), "--engine")
        return
    if "/" not in model and not Path(model).exists():
        close = difflib.get_close_matches(
            model.casefold(), (ORACLE, *sorted(baselines)), n=1, cutoff=0.75
        )
        models = "a model is a directory, a GGUF file, or a hub name such as org/model"
        if close:
            raise RecipeError(
                f"there is no model and no baseline named {model}",
                f"did you mean {close[0]}? {models}",
            )
        for other in task_names():
            if task is not None and other != task.name and model in baselines_of(other, {}):
                raise RecipeError(
                    f"{model} is a baseline of the task {other}, and the task is {task.name}",
                    f"add --task {other}, or give one of {', '.join((ORACLE, *task.baselines))}; "
                    f"{models}",
                )
    opened, _ = options_as_trained(model, options)
    check_model(opened, model, hub=True)


def baselines_of(task: str, options: Mapping[str, Any]) -> Collection[str]:
    """Names of a task's baselines; none where it cannot be opened because something is missing."""
    try:
        return open_task(task, options, NOWHERE).baselines
    except PlumblineError:  # what it needs is not installed
        return ()


def evaluate_model(
    model: str,
    task: Task,
    examples: Sequence[Example],
    split: str,
    options: ModelOptions,
    listener: Listener,
    recipe_sampling: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Evaluate the oracle or a baseline by name, else a model.

    Args:
        model: its name.
        task: what it is asked.
        examples: of the split.
        split: their name.
        options: how it is opened and decoded.
        listener: is told what makes the model slow.
        recipe_sampling: how an endpoint, which has no run of its own, draws where the options do
            not say.

    Raises:
        DataError: the model was trained on some of these prompts.
        ModelError: there is no such model.
        EngineError: the engine that is asked for is not there, or breaks.
        DeviceMemoryError: the device's memory is not enough for it, or for so many answers at once.
    """
    if model == ORACLE or model in task.baselines:
        return evaluate_reference(
            task, examples, source=model, split=split, progress=listener.working
        )
    if not options.allow_overlap:
        advice = (
            "evaluate on a split that it has not seen, or add --allow-overlap to measure memory"
        )
        check_unseen(model, examples, f"these {len(examples)} prompts", advice)
    if options.is_remote:
        from plumbline.evaluation.endpoint import Endpoint

        asked_for = {
            "temperature": 0.0 if options.greedy else options.temperature,
            "max_tokens": options.max_tokens,
        }
        given = {
            "temperature": 0.0,
            **(recipe_sampling or {}),
            **{key: one for key, one in asked_for.items() if one is not None},
        }
        drawn = Sampling(
            **{each.name: given[each.name] for each in fields(Sampling) if each.name in given}
        )
        drawn = drawn.as_greedy() if drawn.greedy else drawn
        under = Conditions(source=model, split=split, sampling=drawn, seed=options.seed)
        asked = Endpoint(str(options.engine), model)
        return evaluate_policy(asked, task, examples, under, _report_progress(listener, split))
    opened, sampling = options_as_trained(model, options)
    listener.working(f"opening {model}", 0, 1)
    policy = open_policy(opened, model)
    listener.working(f"opening {model}", 1, 1)
    policy.say = listener.event
    if message := slowness(policy):
        listener.event("slow", message)
    check_prompts(policy, examples, sampling)
    under = Conditions(source=model, split=split, sampling=sampling, seed=options.seed)
    advice = "draw fewer answers at once with --rows-at-once, or use --device cpu"
    with clear_memory_errors(advice), _open_sampler(policy, options, listener) as sampler:
        return evaluate_policy(sampler, task, examples, under, _report_progress(listener, split))


def _report_progress(listener: Listener, split: str) -> Callable[[int, int], None]:
    return lambda done, total: listener.working(f"evaluating {split}", done, total)


@contextmanager
def _open_sampler(policy: Policy, options: ModelOptions, listener: Listener) -> Iterator[Sampler]:
    """What draws: the policy itself, or a vLLM server that has its weights and ends with the
    block."""
    if options.engine is None:
        yield policy
        return
    from plumbline.engines.vllm import EngineContext, VllmSampler, check_engine

    section = EngineSection(name="vllm")
    check_engine(section, policy.family)
    folder = Path(mkdtemp(prefix="plumbline-"))
    engine = VllmSampler(section, policy, EngineContext(folder, options.seed, listener))
    try:
        yield engine
    finally:
        engine.close()
    shutil.rmtree(folder)  # after a failure the server's log stays there: the error names it


def check_unseen(model: str, examples: Sequence[Example], which: str, fix: str) -> None:
    """Refuse examples whose prompts a model was trained on, as far as its metadata says; `which`
    names them in the error.

    Raises:
        DataError: the model was trained on some of them.
    """
    metadata = ModelMetadata.read(local_model(model))
    seen = [
        example.id
        for example in examples
        if metadata is not None and example.fingerprint() in metadata.trained_on
    ]
    if seen:
        raise DataError(
            f"{model} was trained on {len(seen)} of {which}, for example {seen[0]}", fix
        )
