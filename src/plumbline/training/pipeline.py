"""One run, readable from top to bottom: records, base, SFT, GRPO, an evaluation after each, and the
report.

Every stage leaves a model directory in the standard format, and the next one starts from what is on
disk: what is evaluated is what was saved. A stage whose model exists is not done again and an
evaluation that exists is not repeated, so resuming is running again.
"""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from plumbline.checks.diagnosis.live import validate_check_names
from plumbline.checks.preflight.report import refuse_fatal
from plumbline.checks.refusals import (
    check_disjoint,
    check_gold,
    check_recipe,
    check_replay_support,
    check_start_model,
    check_task,
    final_splits,
    select_pretraining_examples,
    try_verifier,
)
from plumbline.config.imports import import_own, note_addresses
from plumbline.config.overrides import as_mapping
from plumbline.errors import RecipeError
from plumbline.evaluation.evaluate import evaluate_reference, references_of
from plumbline.evaluation.summary import summarise
from plumbline.policies import open_policy
from plumbline.policies.memory import clear_memory_errors, release_memory
from plumbline.policies.options import DenoisingModel, PretrainedModel, model_section
from plumbline.policies.policy import Engine, Helpers, Policy, limits, slowness
from plumbline.recipe import ModelSection, Recipe, SftSection, TinySection
from plumbline.recipe.execution import ENGINES, WORKERS
from plumbline.records import Example
from plumbline.reports.write import write_report
from plumbline.rollouts.collect import check_prompts
from plumbline.runs import output_guard
from plumbline.runs.evaluations import REFERENCE, EvaluationKey
from plumbline.runs.metadata import ModelMetadata, add_trained_prompts
from plumbline.runs.remote import local_model, portable_path
from plumbline.runs.run import RUN, Observer, Run
from plumbline.seeds import derive
from plumbline.storage import find_object
from plumbline.tasks import open_task
from plumbline.tasks.task import Task, gold_of
from plumbline.tasks.task_data import TaskData, task_shares
from plumbline.training.prompts import Source
from plumbline.training.stage_evaluations import (
    evaluate_inside,
    evaluate_stage,
    evaluation_modes,
    replay_last,
)


def run_recipe(
    recipe: Recipe, folder: Path, *, resume: bool = False, observers: Sequence[Observer] = ()
) -> Run:
    """Do everything that a recipe says, or what is left of it.

    Args:
        recipe: what to do.
        folder: the run directory.
        resume: go on with a run that is there.
        observers: who is told.

    Returns:
        The finished run: `result()` has its numbers, its folder the report.

    Raises:
        PlumblineError: what is wrong with the recipe, its records or its model, or why the run was
            stopped.
    """
    output_guard.check_folder(folder, RUN)
    note_addresses([str(recipe.to_dict())])
    validate_check_names(recipe.checks)
    # what a run goes on with was there when it began
    if not (resume and (folder / "recipe.yaml").is_file()):
        check_recipe(recipe)
    with (
        Run.start(recipe, folder, resume=resume, observers=observers) as run,
        clear_memory_errors(_less_memory(recipe)),
        _workers(recipe),
    ):
        recipe = run.recipe
        tasks_data = [_open_task_data(run, name) for name in recipe.each_task]
        check_replay_support(recipe, [task_data.task for task_data in tasks_data])
        check_disjoint(tasks_data)
        if not resume:
            refuse_fatal(recipe, folder, tasks_data)
        for task_data in tasks_data:
            try_verifier(run, task_data)
        _evaluate_references(run, tasks_data)

        train = _mix_tasks(
            recipe, {task_data.name: (task_data.task, task_data.train) for task_data in tasks_data}
        )
        model = (
            local_model(recipe.model.name) if recipe.model.name else _base(recipe, run, tasks_data)
        )
        check_start_model(model, tasks_data)
        if recipe.evaluates_untrained():
            evaluate_stage(run, tasks_data, "base", lambda: _open(run, model, "evaluate"))
        if recipe.sft is not None:
            model = _sft(recipe, run, train, model)
            evaluate_stage(run, tasks_data, "sft", lambda: _open(run, model, "evaluate"))
        if recipe.rl is not None:
            model = _rl(recipe, run, train, tasks_data, model)
            evaluate_stage(run, tasks_data, "rl", lambda: _open(run, model, "evaluate"))

        for task_data in tasks_data:
            replay_last(run, task_data)
        run.finish(_result(run, model))
        write_report(run, {task_data.name: _by_id(task_data) for task_data in tasks_data})
        return run


def _open_task_data(run: Run, name: str) -> TaskData:
    """A task of the run, its records and what of them is held out, checked as far as it concerns
    this task alone."""
    recipe = run.recipe
    section = recipe.each_task[name]
    task = open_task(section.name, section.options, run.folder / "data" / name, run.working)
    check_task(recipe, task)
    if recipe.scale.verdicts:
        task = import_own(f"{WORKERS}:spread_verdicts", "pool of workers")(recipe, task, name, run)
    train = task.examples("train")
    check_gold(recipe, train)
    finals = final_splits(recipe, task)
    held_out = {
        split: task.examples(split) for split in dict.fromkeys([*finals, recipe.evaluation.split])
    }
    held_out |= {split: held_out[split][: recipe.evaluation.final_limit] for split in finals}
    splits = {"train": train, **held_out}
    return TaskData(
        name=name, task=task, splits=splits, finals=finals, inside=recipe.evaluation.split
    )


def _by_id(task_data: TaskData) -> dict[str, Example]:
    return {example.id: example for split in task_data.held_out.values() for example in split}


def _mix_tasks(recipe: Recipe, tasks: Mapping[str, tuple[Task, Sequence[Example]]]) -> Source:
    """The source of a stage's prompts, with the shares that the recipe gives its tasks."""
    examples = {name: found for name, (_, found) in tasks.items()}
    sizes = {name: len(found) for name, found in examples.items()}
    return Source(
        tasks={name: task for name, (task, _) in tasks.items()},
        examples=examples,
        shares=task_shares(recipe, sizes),
    )


def _less_memory(recipe: Recipe) -> str:
    """What to do where the memory of the device is not enough: each of it may change at a
    resume."""
    microbatches = {"sft.tokens_per_microbatch": recipe.sft, "rl.tokens_per_microbatch": recipe.rl}
    advice = [
        f"lower {key} ({section.tokens_per_microbatch} now)"
        for key, section in microbatches.items()
        if section is not None
    ]
    if isinstance(recipe.model, PretrainedModel) and recipe.model.gradient_checkpointing is False:
        advice.append("set model.gradient_checkpointing: true")
    return (
        ", ".join([*advice, "or, where answers were being drawn, set a small model.rows_at_once"])
        + "; then --resume"
    )


def _evaluate_references(run: Run, tasks_data: Sequence[TaskData]) -> None:
    for task_data in tasks_data:
        for split, examples in task_data.held_out.items():
            for name in references_of(task_data.task, examples):
                key = EvaluationKey(REFERENCE, split, name, task=task_data.name)
                if not run.has_evaluation(key):
                    found = evaluate_reference(
                        task_data.task, examples, source=name, split=split, progress=run.working
                    )
                    run.evaluation(key, found)


# -- stages ----------------------------------------------------------------------------------------


def _base(recipe: Recipe, run: Run, tasks_data: Sequence[TaskData]) -> str:
    """Make and pretrain the tiny model where the recipe names none; its directory."""
    folder = run.model("base")
    if run.is_done("base"):
        return str(folder)
    from plumbline.policies.pretrained.tiny import make_tiny

    tiny = recipe.model.tiny or TinySection()
    tasks = {}
    for name, one in recipe.each_task.items():
        task = open_task(
            one.name, recipe.tiny_options(name), run.folder / "data" / "base" / name, run.working
        )
        tasks[name] = (
            task,
            select_pretraining_examples(run, name, task.examples("train"), tasks_data),
        )
    source = _mix_tasks(recipe, tasks)
    examples = [example for found in source.examples.values() for example in found]
    untrained = run.model("untrained")
    texts = (
        text
        for example in examples
        for text in (*(m["content"] for m in example.messages), gold_of(example))
    )
    attention = recipe.model.attention if isinstance(recipe.model, DenoisingModel) else "full"
    make_tiny(untrained, tiny, texts, derive(recipe.seed, "tiny"), recipe.model.family, attention)
    section = SftSection.model_validate(
        {
            "steps": tiny.steps,
            "batch_size": tiny.batch_size,
            "optimiser": {"learning_rate": tiny.learning_rate, "schedule": "cosine"},
        }
    )
    whole = model_section(recipe)
    if isinstance(whole, PretrainedModel):
        whole = whole.model_copy(update={"lora": None, "quantize": None})
    policy = open_policy(whole, str(untrained), recipe.seed)
    _supervise(run, policy, source, section, "base")
    _finish_stage(run, policy, whole, "base", str(untrained), source)
    shutil.rmtree(untrained)
    return str(folder)


def _sft(recipe: Recipe, run: Run, train: Source, model: str) -> str:
    folder = run.model("sft")
    if not run.is_done("sft"):
        assert recipe.sft is not None
        policy = _open(run, model, "sft")
        if recipe.rl is not None:  # now, because it could not be changed after SFT
            for examples in train.examples.values():
                check_prompts(policy, examples, recipe.sampling)
        shown = _mix_tasks(
            recipe,
            {
                name: (train.tasks[name], train.examples[name])
                for name in recipe.sft.tasks or train.tasks
            },
        )
        _supervise(run, policy, shown, recipe.sft, "sft")
        _finish_stage(run, policy, model_section(recipe), "sft", model, shown)
    return str(folder)


def _supervise(run: Run, policy: Policy, source: Source, section: SftSection, stage: str) -> None:
    from plumbline.training.sft import demonstrate, train_sft

    seed = run.recipe.seed
    demonstrations = {
        name: [
            demonstrate(policy, source.tasks[name], example, section, seed) for example in examples
        ]
        for name, examples in source.examples.items()
    }
    train_sft(policy, demonstrations, section, run, source=source, stage=stage)


def _rl(recipe: Recipe, run: Run, train: Source, tasks_data: Sequence[TaskData], model: str) -> str:
    from plumbline.rollouts.collect import hand_over
    from plumbline.training.rl import train_rl

    folder = run.model("rl")
    if run.is_done("rl"):
        return str(folder)
    policy = _open(run, model, "rl")
    for task_data in tasks_data:
        check_prompts(policy, [*task_data.train, *_by_id(task_data).values()], recipe.sampling)
    teacher = _teacher(run, policy, tasks_data)
    with _engine(run, policy, model) as engine, _learners(run, policy, model) as helpers:
        if engine is not None:
            run.environment({"sampler": dict(engine.engine)})

        def evaluate(done: int) -> dict[str, float]:
            assert recipe.rl is not None
            # off-policy it draws in a thread of its own
            idle = None if recipe.rl.off_policy_steps > 0 else engine
            hand_over(policy, done, idle)
            return evaluate_inside(run, idle or policy, tasks_data, done)

        train_rl(policy, train, run, evaluate, engine, helpers, teacher)
    _finish_stage(run, policy, model_section(recipe), "rl", model, train)
    return str(folder)


def _teacher(run: Run, policy: Policy, tasks_data: Sequence[TaskData]) -> Policy | None:
    """Another model that teaches, where the recipe names one; what any teacher is asked fits into
    its context.

    Raises:
        RecipeError: it has another vocabulary, or a hint would be given to a task of several turns.
        DataError: a prompt with its hint does not fit.
    """
    from plumbline.policies.model_files import is_adapter
    from plumbline.policies.opening import adapter_settings
    from plumbline.policies.pretrained.policy import check_vocabularies
    from plumbline.training.rl import teacher_chat

    recipe = run.recipe
    section = recipe.rl.teacher if recipe.rl is not None else None
    if section is None:
        return None
    teacher = None
    if section.model is not None:
        source = local_model(section.model)
        lora = adapter_settings(source) if is_adapter(source) else None
        wanted = model_section(recipe).model_copy(
            update={"lora": lora, "name": section.model, "tiny": None}
        )
        run.working(f"opening {section.model}", 0, 1)
        teacher = open_policy(wanted, source, derive(recipe.seed, "open", "teacher"))
        check_vocabularies(policy, teacher)
        run.environment({"teacher": dict(teacher.engine)})
    if section.has_hint:
        if any(task_data.task.turns > 1 for task_data in tasks_data):
            raise RecipeError(
                "rl.teacher.hint and again are for tasks of one turn",
                "leave it out, or give rl.teacher.model",
            )
        for task_data in tasks_data:
            told = [
                replace(example, messages=tuple(teacher_chat(example, section)))
                for example in task_data.train
            ]
            check_prompts(teacher or policy, told, recipe.sampling)
    return teacher


def _engine(run: Run, policy: Policy, model: str) -> AbstractContextManager[Engine | None]:
    """What draws in place of the policy, where the recipe names an engine or workers; it is closed
    at the end."""
    recipe = run.recipe
    if recipe.engine is None and not recipe.scale.samplers:
        return nullcontext()
    opener = f"{WORKERS}:Samplers" if recipe.engine is None else ENGINES[recipe.engine.name]
    return closing(import_own(opener, "engine")(recipe, policy, model, run))


def _learners(run: Run, policy: Policy, model: str) -> AbstractContextManager[Helpers | None]:
    """What shares an update's micro-batches with this process, where the recipe asks for it."""
    if run.recipe.scale.learners == 1:
        return nullcontext()
    opener = import_own(f"{WORKERS}:open_learners", "learner")
    return closing(opener(run.recipe, policy, model, run))


def _workers(recipe: Recipe) -> AbstractContextManager[None]:
    """The cluster of a run that has workers, for as long as it lasts."""
    if not recipe.scale.needs_ray:
        return nullcontext()
    return import_own(f"{WORKERS}:open_workers", "cluster")(recipe.scale)


def _open(run: Run, source: str, *names: str) -> Policy:
    """Open a stage's model as the recipe says, record what samples and scores it, and say once what
    makes it slow."""
    from plumbline.training.stage import stop_requests

    run.working(f"opening {source}", 0, 1)
    release_memory()  # the last stage's model and optimiser hold one another in cycles
    # an interrupt inside safetensors would come out as an error of the model
    with stop_requests() as asked:
        policy = open_policy(
            model_section(run.recipe), source, derive(run.recipe.seed, "open", *names)
        )
    if asked():
        raise KeyboardInterrupt
    run.working(f"opening {source}", 1, 1)
    policy.say = run.event
    _record_move(run, policy)
    if run.recipe.rl is not None and run.recipe.engine is not None:
        import_own("plumbline.engines.vllm:check_publication", "engine")(run.recipe.engine, policy)
    run.environment({"engine": dict(policy.engine), **_likelihood(run.recipe, policy)})
    said = {event["message"] for event in run.files["events"].rows()}
    for kind, messages in (("slow", [slowness(policy)]), ("note", limits(policy))):
        for message in messages:
            if message and message not in said:
                run.event(kind, message)
    return policy


def _record_move(run: Run, policy: Policy) -> None:
    """Say where a run goes on with other numbers or elsewhere than before: the environment keeps
    the last only."""
    before = as_mapping(find_object(run.folder / "environment.json").get("engine"))
    moved = [
        f"{name}: {before[name]} -> {policy.engine[name]}"
        for name in ("device", "dtype")
        if name in before and before[name] != policy.engine.get(name, before[name])
    ]
    if moved:
        run.event("engine", f"the model is opened otherwise than before ({', '.join(moved)})")


def _likelihood(recipe: Recipe, policy: Policy) -> dict[str, Any]:
    """What RL takes for a rollout's log-probability, and whether that covers every choice that was
    sampled."""
    if recipe.rl is None:
        return {}
    algorithm = recipe.rl.algorithm
    exact = algorithm.exact and recipe.controls.exact and policy.exact(recipe.sampling)
    return {"likelihood": {"kind": algorithm.likelihood, "exact": exact}}


def _finish_stage(
    run: Run, policy: Policy, section: ModelSection, stage: str, source: str, trained: Source
) -> None:
    """Save a stage's model with its metadata; of its checkpoints only one that was better than the
    model stays."""
    from plumbline.training.checkpoints import keep_best

    recipe = run.recipe
    model = section.meaning()
    if section.dtype == "auto" and (dtype := policy.engine.get("dtype")) in {"float32", "bfloat16"}:
        model["dtype"] = dtype  # what auto was here: on another device it is something else
    metadata = ModelMetadata(
        recipe=f"{recipe.name} {recipe.identity()}",
        stage=stage,
        task=recipe.task.name if recipe.task is not None else "",
        options=recipe.task.options if recipe.task is not None else {},
        tasks={
            name: one.model_dump(include={"name", "options"})
            for name, one in (recipe.tasks or {}).items()
        },
        model=model,
        sampling=asdict(
            list(evaluation_modes(recipe).values())[-1]
        ),  # as in training, where that is asked
        trained_on=add_trained_prompts(
            source,
            (
                example.fingerprint()
                for examples in trained.examples.values()
                for example in examples
            ),
        ),
    )
    policy.save(run.model(stage), metadata.to_json())
    keep_best(run.checkpoints(stage))
    run.on_checkpoint()


def _result(run: Run, source: str) -> dict[str, Any]:
    """The outcome as plain values: what was made, and every final evaluation's summary."""
    evaluations = run.evaluations()
    summaries = {}
    for key, evaluation in evaluations.items():
        if key.step is None and key.stage != REFERENCE:
            known = (key.task, key.split)
            beside = {
                k.mode: e
                for k, e in evaluations.items()
                if k.stage == REFERENCE and (k.task, k.split) == known
            }
            summaries[str(key)] = summarise(evaluation, beside)
    return {
        "status": "finished",
        "recipe": {"name": run.recipe.name, "identity": run.recipe.identity()},
        "model": portable_path(source),
        "evaluations": summaries,
    }
