"""One run, readable from top to bottom: records, base, SFT, GRPO, an evaluation after each, and the report.

Every stage leaves a model directory in the standard format, and the next one starts from what is on disk: what is
evaluated is what was saved. A stage whose model exists is not done again and an evaluation that exists is not
repeated, so resuming is running again.
"""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from plumbline import claims
from plumbline.checks import Splits, check_disjoint, check_gold, check_recipe, check_task, final_splits, try_verifier
from plumbline.errors import DataError
from plumbline.evaluation.comparison import fall
from plumbline.evaluation.evaluate import evaluate_policy, references
from plumbline.evaluation.replays import replay_worst
from plumbline.evaluation.summary import summarise
from plumbline.policies import open_policy
from plumbline.policies.memory import clear_memory_errors
from plumbline.policies.options import CanvasModel, DenoisingModel, PretrainedModel
from plumbline.policies.policy import Demonstration, Policy, locating, slowness
from plumbline.recipe import ModelSection, Recipe, SftSection, TinySection
from plumbline.records import Evaluation, Example, Message, Sampling, SteppedSampling
from plumbline.reports.write import write_report
from plumbline.rollouts import check_prompts
from plumbline.runs.cards import Card, trained_on
from plumbline.runs.evaluations import REFERENCE, EvaluationKey, read_evaluation
from plumbline.runs.replays import INDEX, write_replays
from plumbline.runs.run import RUN, Observer, Run, is_run
from plumbline.seeds import derive
from plumbline.storage import read_json
from plumbline.tasks import open_task
from plumbline.tasks.task import Task, gold_of


def run_recipe(recipe: Recipe, folder: Path, *, resume: bool = False, observers: Sequence[Observer] = ()) -> Run:
    """Do everything that a recipe says, or what is left of it.

    Args:
        recipe: what to do.
        folder: the run directory.
        resume: go on with a run that is there.
        observers: who is told.

    Returns:
        The finished run: `result()` has its numbers, its folder the report.

    Raises:
        PlumblineError: what is wrong with the recipe, its records or its model, or why the run was stopped.
    """
    claims.check(folder, RUN, is_run)
    if not (resume and (folder / "recipe.yaml").is_file()):  # what a run goes on with was there when it began
        check_recipe(recipe)
    with (
        Run.start(recipe, folder, resume=resume, observers=observers) as run,
        clear_memory_errors(_less_memory(recipe)),
    ):
        recipe = run.recipe
        task = open_task(recipe.task.name, recipe.task.options, folder / "data", run.working)
        check_task(recipe, task)
        train = task.examples("train")
        check_gold(recipe, train)
        finals = final_splits(recipe, task)
        held_out = {split: task.examples(split) for split in dict.fromkeys([*finals, recipe.evaluation.split])}
        check_disjoint(train, held_out)
        try_verifier(run, task, held_out, finals)
        _evaluate_references(run, task, held_out)

        source = recipe.model.name or _base(recipe, run)
        _evaluate_stage(run, task, held_out, finals, "base", source)
        if recipe.sft is not None:
            source = _sft(recipe, run, task, train, source)
            _evaluate_stage(run, task, held_out, finals, "sft", source)
        if recipe.rl is not None:
            source = _rl(recipe, run, task, train, held_out, source)
            _evaluate_stage(run, task, held_out, finals, "rl", source)

        _replay(run, task, held_out)
        run.finish(_result(run, source))
        write_report(run, {example.id: example for split in held_out.values() for example in split})
        return run


def _less_memory(recipe: Recipe) -> str:
    """What to do where the memory of the device is not enough: each of it may change at a resume."""
    passes = {"sft.tokens_per_pass": recipe.sft, "rl.tokens_per_pass": recipe.rl}
    advice = [f"lower {key} ({section.tokens_per_pass} now)" for key, section in passes.items() if section is not None]
    if isinstance(recipe.model, PretrainedModel) and not recipe.model.gradient_checkpointing:
        advice.append("set model.gradient_checkpointing: true")
    return (
        ", ".join([*advice, "or, where answers were being drawn, set a small model.rows_at_once"]) + "; then --resume"
    )


def _evaluate_references(run: Run, task: Task, held_out: Splits) -> None:
    for split, examples in held_out.items():
        for name, evaluation in references(task, examples, split).items():
            run.evaluation(EvaluationKey(REFERENCE, split, name), evaluation)


# -- stages ------------------------------------------------------------------------------------------------------


def _base(recipe: Recipe, run: Run) -> str:
    """Make and pretrain the tiny model where the recipe names none; its directory."""
    folder = run.model("base")
    if run.is_done("base"):
        return str(folder)
    from plumbline.policies.pretrained.tiny import make_tiny

    tiny = recipe.model.tiny or TinySection()
    task = open_task(
        recipe.task.name, {**recipe.task.options, **tiny.task_options}, run.folder / "data" / "base", run.working
    )
    examples = task.examples("train")
    untrained = run.model("untrained")
    texts = (text for example in examples for text in (*(m["content"] for m in example.messages), gold_of(example)))
    attention = recipe.model.attention if isinstance(recipe.model, DenoisingModel) else "full"
    make_tiny(untrained, tiny, texts, derive(recipe.seed, "tiny"), recipe.model.family, attention)
    section = SftSection.model_validate(
        {
            "steps": tiny.steps,
            "batch_size": tiny.batch_size,
            "optimiser": {"learning_rate": tiny.learning_rate, "schedule": "cosine"},
        }
    )
    whole = _section(recipe)
    if isinstance(whole, PretrainedModel):
        whole = whole.model_copy(update={"lora": None, "quantize": None})
    policy = open_policy(whole, str(untrained), recipe.seed)
    _supervise(run, policy, task, examples, section, "base")
    _finish_stage(run, policy, whole, "base", str(untrained), examples)
    shutil.rmtree(untrained)
    return str(folder)


def _sft(recipe: Recipe, run: Run, task: Task, train: Sequence[Example], source: str) -> str:
    folder = run.model("sft")
    if not run.is_done("sft"):
        assert recipe.sft is not None
        policy = _open(run, source, "sft")
        if recipe.rl is not None:  # now, because it could not be changed after SFT
            check_prompts(policy, train, recipe.sampling)
        _supervise(run, policy, task, train, recipe.sft, "sft")
        _finish_stage(run, policy, _section(recipe), "sft", source, train)
    return str(folder)


def _supervise(
    run: Run,
    policy: Policy,
    task: Task,
    examples: Sequence[Example],
    section: SftSection,
    stage: str,
) -> None:
    from plumbline.training.sft import train_sft

    seed = run.recipe.seed
    demonstrations = [_demonstration(policy, task, example, section, seed) for example in examples]
    train_sft(policy, demonstrations, section, run, run.recipe.run, seed=seed, stage=stage)


def _demonstration(policy: Policy, task: Task, example: Example, section: SftSection, seed: int) -> Demonstration:
    answer = task.demonstration(example, derive(seed, "demonstration", example.id))
    chat: list[Message] = [*example.messages, {"role": "assistant", "content": answer}]
    try:
        return policy.demonstrate(chat, allow_truncation=section.allow_truncation)
    except DataError as error:
        raise DataError(f"example {example.id}: {error.cause}", error.fix) from error


def _rl(recipe: Recipe, run: Run, task: Task, train: Sequence[Example], held_out: Splits, source: str) -> str:
    from plumbline.training.rl import train_rl

    folder = run.model("rl")
    if run.is_done("rl"):
        return str(folder)
    assert recipe.rl is not None
    policy = _open(run, source, "rl")
    law = recipe.sampling
    check_prompts(policy, [*train, *(example for split in held_out.values() for example in split)], law)
    inside = held_out[recipe.evaluation.split][: recipe.evaluation.limit]

    def evaluate(step: int) -> dict[str, float]:
        return _evaluate_inside(recipe, run, policy, task, inside, step)

    train_rl(
        policy,
        task,
        train,
        recipe.rl,
        law,
        run,
        recipe.run,
        seed=recipe.seed,
        evaluate=evaluate if recipe.evaluation.every else None,
        evaluate_every=recipe.evaluation.every,
    )
    _finish_stage(run, policy, _section(recipe), "rl", source, train)
    return str(folder)


def _open(run: Run, source: str, *names: str) -> Policy:
    """Open a stage's model as the recipe says, record what samples and scores it, and say once what makes it slow."""
    from plumbline.training.stage import stop_requests

    with stop_requests() as asked:  # an interrupt inside safetensors would come out as an error of the model
        policy = open_policy(_section(run.recipe), source, derive(run.recipe.seed, "open", *names))
    if asked():
        raise KeyboardInterrupt
    _record_move(run, policy)
    if run.recipe.rl is not None and run.recipe.rl.credit == "items":
        locating(policy)  # at the first stage, so before anything is trained
    run.environment({"engine": dict(policy.engine), **_likelihood(run.recipe, policy)})
    message = slowness(policy)
    if message and all(event["message"] != message for event in run.files["events"].rows()):
        run.event("slow", message)
    return policy


def _record_move(run: Run, policy: Policy) -> None:
    """Say where a run goes on with other numbers or elsewhere than before: the environment keeps the last only."""
    path = run.folder / "environment.json"
    before = read_json(path).get("engine", {}) if path.is_file() else {}
    moved = [
        f"{name}: {before[name]} -> {policy.engine[name]}"
        for name in ("device", "dtype")
        if name in before and before[name] != policy.engine.get(name, before[name])
    ]
    if moved:
        run.event("engine", f"the model is opened otherwise than before ({', '.join(moved)})")


def _likelihood(recipe: Recipe, policy: Policy) -> dict[str, Any]:
    """What RL takes for a rollout's log-probability, and whether that covers every choice that was sampled."""
    if recipe.rl is None:
        return {}
    how = recipe.rl.likelihood
    exact = how.kind == "trajectory" and not how.tokens_only and how.temperature is None
    return {"likelihood": {"kind": how.kind, "exact": exact and policy.exact(recipe.sampling)}}


def _section(recipe: Recipe) -> ModelSection:
    """The recipe's model section with the canvas that its sampling law fills."""
    model = recipe.model
    if isinstance(model, CanvasModel) and model.canvas is None:
        return model.model_copy(update={"canvas": recipe.sampling.max_tokens})
    return model


def _finish_stage(
    run: Run, policy: Policy, section: ModelSection, stage: str, source: str, trained: Sequence[Example]
) -> None:
    """Save a stage's model with its card; its checkpoints only took room from here on."""
    recipe = run.recipe
    model = section.meaning()
    if section.dtype == "auto" and (dtype := policy.engine.get("dtype")) in {"float32", "bfloat16"}:
        model["dtype"] = dtype  # what auto was here: on another device it is something else
    card = Card(
        recipe=f"{recipe.name} {recipe.identity()}",
        stage=stage,
        task=recipe.task.name,
        options=recipe.task.options,
        model=model,
        sampling=asdict(_modes(recipe)["sampled"] if recipe.evaluation.sampled else _modes(recipe)["greedy"]),
        trained_on=trained_on(source, (example.fingerprint() for example in trained)),
    )
    policy.save(run.model(stage), card.to_json())
    shutil.rmtree(run.checkpoints(stage), ignore_errors=True)


# -- evaluations -------------------------------------------------------------------------------------------------


def _modes(recipe: Recipe) -> dict[str, Sampling]:
    """The ways in which a model is asked: greedily, and as in training (but for the number of denoising steps)."""
    law = recipe.sampling
    if isinstance(law, SteppedSampling):
        law = replace(law, steps=recipe.evaluation.steps or law.steps)
    return {"greedy": law.as_greedy(), **({"sampled": law} if recipe.evaluation.sampled else {})}


def _evaluate_stage(run: Run, task: Task, held_out: Splits, finals: Sequence[str], stage: str, source: str) -> None:
    """Evaluate a stage's saved model on all of the final splits, where that was not done before."""
    recipe = run.recipe
    keys = [EvaluationKey(stage, split, mode) for split in finals for mode in _modes(recipe)]
    missing = [key for key in keys if not (run.folder / "evaluations" / f"{key}.json").is_file()]
    if not missing:
        return
    policy = _open(run, source, "evaluate")
    for key in missing:
        evaluation = _evaluate(run, policy, task, held_out[key.split], key)
        run.evaluation(key, evaluation)


def _replay(run: Run, task: Task, held_out: Splits) -> None:
    """Pictures of the last stage's worst greedy answers, where the recipe asks for them."""
    recipe = run.recipe
    if not recipe.evaluation.replays:
        return
    stage = "rl" if recipe.rl is not None else "sft" if recipe.sft is not None else "base"
    key = EvaluationKey(stage, recipe.evaluation.final[-1], "greedy")
    folder = run.replays(key)
    if (folder / INDEX).is_file():
        return
    run.working(f"replaying {key}", 0, recipe.evaluation.replays)
    replays = replay_worst(task, held_out[key.split], run.evaluations()[key], recipe.evaluation.replays)
    write_replays(folder, replays)


def _evaluate(run: Run, policy: Policy, task: Task, examples: Sequence[Example], key: EvaluationKey) -> Evaluation:
    check_prompts(policy, examples, _modes(run.recipe)[key.mode])
    return evaluate_policy(
        policy,
        task,
        examples,
        source=key.stage if key.step is None else f"{key.stage}@{key.step}",
        split=key.split,
        sampling=_modes(run.recipe)[key.mode],
        seed=derive(run.recipe.seed, "evaluation", key.split, key.mode),
        progress=lambda done, total: run.working(f"evaluating {key}", done, total),
    )


def _evaluate_inside(
    recipe: Recipe, run: Run, policy: Policy, task: Task, examples: Sequence[Example], step: int
) -> dict[str, float]:
    """Evaluations during RL: recorded whole, and as metrics under the names that the field uses."""
    values: dict[str, float] = {}
    for mode in _modes(recipe):
        key = EvaluationKey("rl", recipe.evaluation.split, mode, step)
        evaluation = _evaluate(run, policy, task, examples, key)
        run.evaluation(key, evaluation)
        if mode == "sampled":
            values["eval/sampled_mean_reward"] = evaluation.mean_reward
            continue
        values["eval/mean_reward"] = evaluation.mean_reward
        first = read_evaluation(run.folder / "evaluations" / f"{replace(key, step=0)}.json")
        if found := fall(first, evaluation):
            run.event(
                "worse",
                f"after {step} steps of RL the greedy answers earn {found}: what the model could is unlearnt. "
                "Start again with a lower rl.optimiser.learning_rate, one that falls (schedule: linear), or more "
                "answers a step (rl.prompts_per_step)",
            )
        for stratum in sorted({row.stratum for row in evaluation.rows if row.stratum}):
            values[f"eval/{stratum}"] = _mean([r.reward for r in evaluation.rows if r.stratum == stratum])
        for reading in evaluation.rows[0].readings:  # there is one: too many that cannot be judged stop the run
            values[f"eval/reading/{reading}"] = _mean([r.readings[reading] for r in evaluation.rows])
        if evaluation.unjudged:
            values["eval/frac_failed"] = len(evaluation.unjudged) / (len(evaluation.rows) + len(evaluation.unjudged))
    return values


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _result(run: Run, source: str) -> dict[str, Any]:
    """The outcome as plain values: what was made, and every final evaluation's summary."""
    evaluations = run.evaluations()
    summaries = {}
    for key, evaluation in evaluations.items():
        if key.step is None and key.stage != REFERENCE:
            beside = {k.mode: e for k, e in evaluations.items() if k.stage == REFERENCE and k.split == key.split}
            summaries[str(key)] = summarise(evaluation, beside)
    return {
        "status": "finished",
        "recipe": {"name": run.recipe.name, "identity": run.recipe.identity()},
        "model": source,
        "evaluations": summaries,
    }
