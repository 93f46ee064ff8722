"""The keys of a recipe, their types, defaults and ranges."""

import difflib
import hashlib
import json
import math
import re
from collections.abc import Mapping
from datetime import date as day
from functools import reduce
from typing import Annotated, Any, ClassVar, Literal, Self

import yaml
from pydantic import Field, SerializeAsAny, field_validator, model_validator

from plumbline.algorithms import ALGORITHMS
from plumbline.algorithms.algorithm import Algorithm
from plumbline.algorithms.grpo import Grpo
from plumbline.config.overrides import as_mapping
from plumbline.config.section import PositiveInt, Section, key_types, no_flags
from plumbline.recipe.decision_rules import ChecksSection, DecideSection, WatchRule
from plumbline.recipe.execution import EngineSection, EvaluationSection, RunSection, ScaleSection
from plumbline.records import Sampling

Schedule = Literal["constant", "constant_with_warmup", "cosine", "linear"]
Share = Annotated[float, Field(ge=0, le=1)]
Budget = Annotated[float | None, Field(gt=0)]
TIS = 2.0
"""Cap of the importance weights where an engine draws: that of the published uses (Yao and others
2025)."""


DATE = "2024-07-26"
"""What Llama's own templates write where they have no clock."""


class TaskSection(Section):
    """Which task, and its own options (checked by the task when it is opened, before anything is
    trained)."""

    name: str = "jsonl"
    """One of `plumbline.tasks.task_names`, or `module:Class` for a task of yours; by default rows
    and a function."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The task's own: those of `jsonl` are below, those of others on the task's page."""


TaskName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
"""What a recipe calls one of several tasks; folders are called so, too."""


class SharedTaskSection(TaskSection):
    """One of several tasks of a run."""

    weight: float = Field(default=1.0, gt=0)
    """Its prompts in a step, in proportion to those of the other tasks (see `mix`)."""


class TinySection(Section):
    """A model made on the spot, for demos and tests: a Llama of this size with its own tokenizer.

    It is pretrained on the task's clean demonstrations, from records of its own (`task_options`,
    laid over the recipe's; of several tasks by their names), less those whose prompts the run's
    splits hold out, which stay unseen.
    """

    hidden: PositiveInt = 96
    """Width of the hidden states."""
    layers: PositiveInt = 3
    """Transformer layers."""
    heads: PositiveInt = 4
    """Attention heads of a layer."""
    vocabulary: PositiveInt = 1536
    """Tokens that its tokenizer learns."""
    context: PositiveInt = 1024
    """Longest prompt plus completion, in tokens."""
    steps: PositiveInt = 400
    """Steps of its pretraining."""
    batch_size: PositiveInt = 16
    """Texts of a pretraining step."""
    learning_rate: float = Field(default=3e-3, gt=0)
    """Of its pretraining."""
    task_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the pretraining records, laid over the task's."""

    @property
    def inner(self) -> int:
        """Width of the feed-forward layers: 8/3 of `hidden`, rounded up to a multiple of 32."""
        return -(-self.hidden * 8 // 3 // 32) * 32

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden % (2 * self.heads):  # rotary positions turn pairs of numbers in each head
            raise ValueError(
                f"{self.heads} heads cannot share hidden {self.hidden} in even parts: "
                f"make hidden a multiple of {2 * self.heads}"
            )
        return self


class LoraSection(Section):
    """Low-rank adapters on the linear layers; the base stays frozen, and without its adapter it is
    the reference."""

    rank: PositiveInt = 16
    """Rank of each adapter."""
    alpha: PositiveInt = 32
    """The adapter's output is scaled by alpha / rank."""
    targets: str | list[str] = "all-linear"
    """Names of the layers that get adapters."""


class ModelSection(Section):
    """The policy: which weights, and how they are loaded.

    What a family needs beside these keys stands in a subclass, which it declares (see
    `plumbline.recipe.families`).
    """

    how: ClassVar[frozenset[str]] = frozenset({"device", "threads", "rows_at_once"})
    """Keys that say how a run is executed: they may change at a resume, and no saved model
    remembers them."""

    family: str = "autoregressive"
    """autoregressive, masked, slots or flow; or module:Class, a policy of yours."""
    name: str | None = None
    """A local directory, a GGUF file or a hub name. Without one, `tiny` says how to make a
    model."""
    tiny: TinySection | None = None
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 on a GPU, float32 on a CPU."""
    device: str = "auto"
    """auto, cpu, cuda, or one of several GPUs, such as cuda:1. auto: a GPU where there is one."""
    threads: Annotated[int, Field(gt=0, le=1024)] | None = None
    """CPU threads; None leaves it to torch. A tiny model is faster with one, and its results depend
    on the number."""
    context: PositiveInt | None = None
    """Longest prompt plus completion; None takes the model's own limit."""
    chat_template: str | None = None
    """For a tokenizer without one: `chatml`, or the path of a Jinja file."""
    date: str = DATE
    """What a chat template gets as today's date, so that prompts are the same on every day."""
    rows_at_once: PositiveInt | None = None
    """Answers drawn at the same time; None: 64 on a CPU, more on a GPU. Fewer need less memory and
    give the same answers; out of memory, a run continues with half as many."""
    trust_remote_code: bool = False
    """Run the code that comes with the model's files; a file that sets it needs `--trust-code`."""

    def meaning(self) -> dict[str, Any]:
        """What decides how the weights are used and so what they score; a saved model remembers it.

        Not `lora`, which an adapter's own files hold, nor `trust_remote_code`, which nobody should
        be told by a file.
        """
        return self.model_dump(exclude={*self.how, "name", "tiny", "lora", "trust_remote_code"})

    @field_validator("date", mode="before")
    @classmethod
    def _day(cls, date: object) -> str:
        try:
            # YAML reads a day that is not quoted as one
            return day.fromisoformat(str(date)).isoformat()
        except ValueError:
            raise ValueError(f"{date} is no day: give it as {DATE}") from None

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        if device.partition(":")[0] == "mps":
            raise ValueError("mps has no float64, in which tokens are drawn: take cpu")
        if not re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", device):
            raise ValueError(f"there is no device {device}: it is auto, cpu, cuda or cuda:NUMBER")
        return device

    @model_validator(mode="after")
    def _source(self) -> Self:
        if self.name is None and self.tiny is None:
            raise ValueError(
                "give model.name (a local directory or a hub name), or model.tiny to make one on "
                "the spot"
            )
        return self


class OptimiserSection(Section):
    """AdamW, its schedule and the clipping of the gradient."""

    name: Literal["adamw", "adamw8bit"] = "adamw"
    """adamw8bit keeps the moments in 8 bits: 2 bytes a weight, not 8 (extra 4bit)."""
    learning_rate: float = Field(default=1e-4, gt=0)
    """The highest rate of the schedule."""
    schedule: Schedule = "constant_with_warmup"
    """How the rate changes after the warm-up; `constant` has no warm-up."""
    warmup: float = Field(default=0.05, ge=0)
    """Below 1: share of the steps; from 1 on: a number of steps."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Of AdamW."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (
        0.9,
        0.95,
    )
    """AdamW's decay rates of the mean and of the square of the gradient."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """A larger gradient is scaled down to this norm."""

    def check_warmup(self, steps: int) -> None:
        """Refuse a warm-up that the steps never leave.

        Raises:
            ValueError: it is longer than they are.
        """
        if self.warmup >= 1 and self.warmup > steps:
            raise ValueError(f"optimiser.warmup is {self.warmup:g} steps, and there are {steps}")

    def warmup_steps(self, total: int) -> int:
        """Steps of the warm-up, of `total` in all."""
        return round(self.warmup * total) if self.warmup < 1 else int(self.warmup)

    def learning_rate_factor(self, step: float, total: int) -> float:
        """The share of the learning rate at `step` (from 0, not always a whole one) of `total`.

        The warm-up rises linearly and its first step already moves: (step + 1) / warmup, 1 at most.
        After it `constant` and `constant_with_warmup` stay at 1, `linear` falls to 0 at `total`,
        `cosine` falls along half a cosine.
        """
        warmup = self.warmup_steps(total)
        if self.schedule != "constant" and step < warmup:
            return min(1.0, (step + 1) / warmup)
        progress = (step - warmup) / max(1, total - warmup)
        if self.schedule == "linear":
            return max(0.0, 1.0 - progress)
        if self.schedule == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
        return 1.0


class SftSection(Section):
    """Supervised fine-tuning on the task's demonstrations."""

    on_cpu: ClassVar[int] = 16384

    steps: PositiveInt | None = None
    """Optimiser steps; give these or `epochs`."""
    epochs: float | None = Field(default=None, gt=0)
    """Passes over the demonstrations; give these or `steps`."""
    seconds: Budget = None
    """Processor-seconds of this process that steps may take: the stage ends with the step that
    reaches them, if `steps` or `epochs` do not end it before, and the learning rate's schedule
    follows the larger share of the two."""
    batch_size: PositiveInt = 16
    """Demonstrations of an optimiser step."""
    tasks: list[str] | None = None
    """Of several tasks those whose demonstrations are shown; None shows all."""
    tokens_per_microbatch: PositiveInt | Literal["auto"] = "auto"
    """A batch is cut into micro-batches of at most this many tokens; the result is the same, the
    memory is not. auto: as many as the first batch is measured to leave memory for on a GPU; 16384
    on a CPU."""
    allow_truncation: bool = False
    """A demonstration longer than the context is an error; allowed, it is cut and counted."""
    optimiser: OptimiserSection = OptimiserSection()

    @model_validator(mode="after")
    def _length(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either sft.steps or sft.epochs")
        if self.steps is not None:
            self.optimiser.check_warmup(self.steps)
        return self


class ControlsSection(Section):
    """What is wrong on purpose: negative controls of RL, which show what a rise without learning
    looks like."""

    shuffle_advantages: bool = False
    """Deal advantages at random within the batch, so that nothing can be learnt."""
    score_temperature: float | None = Field(default=None, gt=0)
    """Score at another temperature than was sampled at."""

    @property
    def exact(self) -> bool:
        """Whether what is scored is what was sampled."""
        return self.score_temperature is None


class TeacherSection(Section):
    """Who the policy is drawn to, in place of the model that the stage began with: the KL is
    measured to it."""

    model: str | None = None
    """A local directory or a hub name, of the same vocabulary; None: the model itself."""
    weights: Literal["start", "present"] = "start"
    """Of the model itself: those that the stage began with, or those that are trained (without
    gradient)."""
    hint: str | None = None
    """Added to the last message of the teacher's prompt; {gold} in it is the gold answer."""
    again: str | None = None
    """Asked of the teacher after the prompt and the gold answer as its own, such as: Repeat
    your answer exactly. A small model copies its own answer better than one that it is told."""

    @property
    def has_hint(self) -> bool:
        """Whether the teacher's prompt is another one."""
        return self.hint is not None or self.again is not None

    @model_validator(mode="after")
    def _knows_more(self) -> Self:
        if self.model is None and not self.has_hint:
            raise ValueError(
                "give rl.teacher.model, another model, or rl.teacher.hint or again, what only the "
                "teacher is told"
            )
        if self.hint is not None and self.again is not None:
            raise ValueError(
                "rl.teacher.hint and again are two ways to tell the teacher: leave out one of them"
            )
        if self.model is not None and self.weights == "present":
            raise ValueError(
                "rl.teacher.weights: present are the policy's own: leave out rl.teacher.model"
            )
        return self


class FilterSection(Section):
    """Which training prompts RL has: the model that it begins with answers each a few times before
    the first step.

    Kept are prompts with least <= mean reward <= most; what was measured is in difficulty.jsonl of
    the run.
    """

    samples: PositiveInt = 4
    """Answers to each prompt, drawn as in training."""
    least: Share = 0.0
    """The lowest mean reward that is kept: above 0 leaves out what never succeeds."""
    most: Share = 1.0
    """The highest: below 1 leaves out what always succeeds."""
    prompts: PositiveInt | None = None
    """Of each task so many prompts are measured, in an order of the seed's, and the others left
    out; None: all are."""

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.least > self.most:
            raise ValueError(
                f"least {self.least:g} is above most {self.most:g}, so no prompt is kept: swap them"
            )
        return self


class RlSection(Section):
    """RL over groups of rollouts."""

    on_cpu: ClassVar[int] = 8192

    steps: PositiveInt
    """Batches of rollouts that are drawn and learnt from."""
    seconds: Budget = None
    """As in SFT: of drawing, judging and updating; evaluations and other processes are not in
    it."""
    algorithm: SerializeAsAny[Algorithm] = Grpo()
    """A name, or {name: ..., its options} (see `plumbline.algorithms` and
    docs/reference/algorithms.md)."""
    prompts_per_step: PositiveInt = 4
    """Prompts of a batch of rollouts."""
    resample: Annotated[int, Field(ge=0, le=16)] = 0
    """Rounds of further prompts that replace groups without a signal (dynamic sampling, as in
    DAPO). The bias: prompts with a spread are over-represented in gradient and train/reward;
    train/reward_drawn is of all that was drawn."""
    filter: FilterSection | None = None
    order: Literal["random", "given", "easy-first"] = "random"
    """Of the prompts in an epoch: a fresh one, the data's own, or the highest mean reward first
    (see `filter`)."""
    group_size: PositiveInt = 8
    """Answers to each prompt; one is enough where answers are not compared (distil)."""
    inner_epochs: PositiveInt = 1
    """How often each batch of rollouts is learnt from (mu); with more than one optimiser step the
    clip is live."""
    minibatch: PositiveInt | None = None
    """Prompts of an optimiser step; None: all of the batch."""
    beta: float = Field(default=0.0, ge=0)
    """Weight of the KL to the model that RL started from; 0 computes none, and reports none."""
    kl: Literal["sampled", "closed", "forward"] = "sampled"
    """sampled: estimated from the sampled choices; closed: summed over all choices that a step
    could have made; forward: the same of the reference to the policy (autoregressive models)."""
    teacher: TeacherSection | None = None
    off_policy_steps: int = Field(default=0, ge=0)
    """Async rollouts: the sampler draws with weights that are so many versions behind, while the
    learner trains (`training.async_rollouts`)."""
    old: Literal["recorded", "rescored"] = "recorded"
    """What a ratio's old log-probabilities are. recorded: those of the sampler. Right where sampler
    and learner agree, so on-policy; a few steps off-policy the ratio corrects for it, but what was
    learnt since uses up the clip. rescored: the learner's before the update, so the clip bounds
    this update alone. It needs `tis` where the sampler differs."""
    tis: float | None = Field(default=None, ge=1)
    """Weight losses by min(learner before the update / sampler, this cap), for example 2
    (`algorithms.objective`); only with `old: rescored`, because against recorded ones the ratio has
    this factor already."""
    patience: PositiveInt = 10
    """Stop when this many steps in a row gave no group with a signal (the check no-signal; see
    `checks`)."""
    max_gap: float = Field(default=0.1, gt=0)
    """Stop when the sampler's and the scorer's log-probabilities differ by more than this many nats
    on average."""
    tokens_per_microbatch: PositiveInt | Literal["auto"] = "auto"
    """As in SFT; auto: 8192 on a CPU."""
    optimiser: OptimiserSection = OptimiserSection(learning_rate=5e-6)

    @property
    def uses_recorded_logprobs(self) -> bool:
        """Whether the sampler's records are the old log-probabilities; a bound is always scored
        again."""
        return self.algorithm.exact and self.old == "recorded"

    @field_validator("algorithm", mode="before")
    @classmethod
    def _known_algorithm(cls, value: Any) -> Algorithm:
        if isinstance(value, Algorithm):
            return value
        if not isinstance(value, str | dict):
            raise ValueError("give a name, or {name: ..., and its options}")  # noqa: TRY004 - pydantic's
        options = as_mapping(value)
        name = str(options.get("name", "grpo"))
        if name not in ALGORITHMS:
            close = difflib.get_close_matches(name, ALGORITHMS, n=1)
            advice = f"did you mean {close[0]}?" if close else f"there are {', '.join(ALGORITHMS)}"
            raise ValueError(f"there is no algorithm {name} ({advice})")
        return ALGORITHMS[name].inside(options)

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        self.optimiser.check_warmup(self.steps)
        if self.seconds is not None and self.off_policy_steps:
            raise ValueError(
                "rl.seconds counts the work of steps one after the other: leave out rl.off_policy_steps"
            )
        how = self.algorithm
        if not (how.uses_ratio or how.selects_subset) and (
            self.inner_epochs > 1 or self.minibatch or self.beta > 0
        ):
            raise ValueError(
                f"rl.algorithm: {how.name} has no ratio and no KL: one inner epoch, beta 0, no "
                "minibatch"
            )
        if not how.uses_ratio and self.beta > 0:
            raise ValueError(f"rl.algorithm: {how.name} has no KL: leave out rl.beta")
        if how.uses_group_baseline and self.group_size < 2:
            raise ValueError(
                f"rl.algorithm: {how.name} compares the answers to a prompt: rl.group_size is 2 at "
                "least"
            )
        if how.needs_teacher and (self.beta == 0 or self.teacher is None):
            raise ValueError(
                f"rl.algorithm: {how.name} learns from a teacher alone: give rl.teacher, and rl.beta: 1"
            )
        if self.teacher is not None and self.beta == 0:
            raise ValueError("rl.teacher is who the KL is measured to: give rl.beta")
        if not (how.exact and how.uses_ratio) and (
            self.off_policy_steps or self.old == "rescored" or self.tis is not None
        ):
            raise ValueError(
                f"rl.algorithm: {how.name} has no ratio to what the sampler recorded, so nothing "
                "corrects for older "
                "weights: leave out rl.off_policy_steps, rl.old and rl.tis"
            )
        if self.tis is not None and self.old == "recorded":
            raise ValueError(
                "rl.tis weights by learner / sampler, which the ratio to recorded "
                "log-probabilities has in it already: "
                "set rl.old: rescored, or leave out rl.tis"
            )
        if self.kl != "sampled" and not how.exact:
            raise ValueError(
                f"rl.kl: {self.kl} sums over the choices of sampled steps; a bound has rl.kl: "
                "sampled"
            )
        return self

    @model_validator(mode="after")
    def _prompts_fit(self) -> Self:
        if self.order == "easy-first" and self.filter is None:
            raise ValueError(
                "rl.order: easy-first goes by what rl.filter measures: give it, such as {samples: "
                "4}"
            )
        if self.resample and not self.algorithm.uses_group_baseline:
            raise ValueError(
                f"rl.resample is for rewards that are compared, which {self.algorithm.name} does "
                "not do"
            )
        return self


ADDED = {"model": ("date",), "rl": ("resample", "filter", "order", "minibatch", "teacher")}
"""Keys by section without which a recipe is what it is with their defaults, to its identity,
too."""
NO_RESULT = ("run", "description", "checks", "watch", "decide", "scale")
"""Keys that change no result: how a run is written, tracked, called, checked, watched, asked and
spread."""


class Recipe(Section):
    """Everything that defines a run."""

    foreign: ClassVar[frozenset[str]] = frozenset()
    """Keys that only other families of models read (`plumbline.recipe.families`)."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """What the run is called; its folder is `run.folder`/name."""
    description: str = ""
    """A sentence about it, which `plumbline recipe` prints."""
    controls: ControlsSection = ControlsSection()
    seed: int = 0
    """Of every random number of the run."""
    task: TaskSection | None = None
    """The task and its options; where there are no `tasks`, by default jsonl."""
    tasks: dict[TaskName, SharedTaskSection] | None = None
    """Several tasks in one run, by names of your choice; instead of `task`. All else of the recipe
    holds for each. One that is set to null is left out, which takes it away from a recipe that is
    extended."""
    mix: Literal["tasks", "examples"] = "tasks"
    """What a task's weight weighs: the task as a whole, or each of its training examples."""
    model: ModelSection
    sft: SftSection | None = None
    rl: RlSection | None = None
    sampling: Sampling = Sampling()
    """How training rollouts are drawn; evaluations draw the same way, and greedily beside it."""
    evaluation: EvaluationSection = EvaluationSection()
    engine: EngineSection | None = None
    """What draws rollouts in place of this process: a name, such as vllm, or {name: ..., its
    options}."""
    scale: ScaleSection = ScaleSection()
    run: RunSection = RunSection()
    checks: ChecksSection = ChecksSection()
    watch: dict[str, WatchRule | None] = Field(default={})
    """Rules that RL is watched by; null takes one away from a recipe that is extended."""
    decide: DecideSection | None = None
    """What `plumbline decide` asks of the run, and where the answers lead."""

    @model_validator(mode="before")
    @classmethod
    def _one_or_several(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        if isinstance(tasks := values.get("tasks"), dict):
            return {
                **values,
                "tasks": {name: one for name, one in tasks.items() if one is not None},
            }
        return (
            values
            if values.get("task") is not None or tasks is not None
            else {**values, "task": TaskSection()}
        )

    @model_validator(mode="after")
    def _tasks_fit(self) -> Self:
        shown = (self.sft.tasks if self.sft is not None else None) or []
        if strange := [name for name in shown if name not in (self.tasks or {})]:
            known = (
                f"the names of tasks are {', '.join(self.tasks)}"
                if self.tasks
                else "the run has one task"
            )
            raise ValueError(f"sft.tasks has {strange[0]}, and {known}")
        if self.tasks is None:
            if self.mix != "tasks":
                raise ValueError(
                    f"mix: {self.mix} says how several tasks are mixed, and there is one"
                )
            return self
        if self.task is not None:
            raise ValueError(
                "give either task or tasks; where a recipe that is extended has the other, set "
                "that to null"
            )
        if len(self.tasks) < 2:
            raise ValueError("tasks names several tasks; a single one is given as task")
        tiny = self.model.tiny.task_options if self.model.tiny is not None else {}
        if strange := [name for name in tiny if name not in self.tasks]:
            raise ValueError(
                f"model.tiny.task_options has {strange[0]}, and the names of tasks are "
                f"{', '.join(self.tasks)}"
            )
        if strange := [name for name, options in tiny.items() if not isinstance(options, dict)]:
            raise ValueError(f"model.tiny.task_options.{strange[0]} is no mapping of options")
        return self

    @property
    def each_task(self) -> Mapping[str, TaskSection]:
        """The run's tasks by name; a single one has the name ""."""
        if self.tasks is not None:
            return self.tasks
        assert self.task is not None
        return {"": self.task}

    @property
    def trust_flag(self) -> str:
        """What a command on this recipe needs behind it, where rows are scored by a function that
        it names."""
        return " --trust-code" * any(one.name == "jsonl" for one in self.each_task.values())

    def tiny_options(self, name: str) -> dict[str, Any]:
        """The options of a task's records that a tiny model is pretrained on."""
        tiny = self.model.tiny.task_options if self.model.tiny is not None else {}
        return {
            **self.each_task[name].options,
            **(tiny.get(name, {}) if self.tasks is not None else tiny),
        }

    @field_validator("sampling", mode="before")
    @classmethod
    def _flags_are_no_numbers_in_sampling(cls, values: Any) -> Any:
        return no_flags(values, key_types(cls.model_fields["sampling"].annotation))

    @field_validator("sampling")
    @classmethod
    def _something_is_drawn(cls, sampling: Sampling) -> Sampling:
        if sampling.greedy:
            raise ValueError(
                "temperature must be greater than 0: training draws, and evaluates greedily beside "
                "it"
            )
        return sampling

    @field_validator("engine", mode="before")
    @classmethod
    def _engine_by_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _engine_fits(self) -> Self:
        """An engine's kernels round otherwise, so what it recorded is corrected for: by default,
        and if need be."""
        if self.rl is not None and self.rl.teacher is not None and self.scale.learners > 1:
            raise ValueError("rl.teacher is in this process alone: leave out scale.learners")
        if self.engine is not None and self.scale.samplers:
            raise ValueError(
                "engine and scale.samplers both draw the rollouts: leave out one of them"
            )
        if self.engine is None or self.rl is None:
            return self
        if self.rl.off_policy_steps and self.model.dtype != "float32":
            raise ValueError(
                "rl.off_policy_steps with an engine needs model.dtype: float32: its probe scores in float32 "
                "while the learner "
                "trains, and the two share the frozen weights"
            )
        if not self.rl.algorithm.exact or not self.rl.algorithm.uses_ratio:
            raise ValueError(
                f"rl.algorithm: {self.rl.algorithm.name} has no ratio to what the sampler "
                "recorded, so nothing "
                "corrects for an engine's rounding: leave out engine, or use grpo"
            )
        if not {"old", "tis"} & self.rl.model_fields_set:
            object.__setattr__(
                self, "rl", self.rl.model_copy(update={"old": "rescored", "tis": TIS})
            )
        return self

    @model_validator(mode="after")
    def _acts(self) -> Self:
        if self.rl is not None:
            self.rl.algorithm.check(self.sampling)
        elif self.controls != ControlsSection():
            raise ValueError(
                "controls are wrong settings of RL, and this recipe has no rl: leave them out"
            )
        return self

    def to_dict(self) -> dict[str, Any]:
        """The resolved recipe as plain values: every key that the family reads, defaults
        included."""
        values = self.model_dump(mode="json")
        for key in self.foreign:
            *sections, name = key.split(".")
            inner: Any = reduce(lambda at, section: at.get(section) or {}, sections, values)
            inner.pop(name, None)
        return values

    def to_yaml(self) -> str:
        """The same as YAML."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True, width=110)

    def evaluates_untrained(self) -> bool:
        """Whether the model is evaluated before SFT and GRPO; always, where there is neither."""
        return self.evaluation.untrained is not False or (self.sft is None and self.rl is None)

    def untrained_limit(self) -> int | None:
        """Examples of each split that are asked of the untrained model, greedily alone; None: all,
        in every mode."""
        asked = self.evaluation.untrained
        return None if isinstance(asked, bool) or (self.sft is None and self.rl is None) else asked

    def identity(self) -> str:
        """12 hex digits of everything that can change the result (where it is written, tracked and
        watched cannot)."""
        content = self.model_dump(mode="json", exclude=set(NO_RESULT))
        for name, kind in (("model", ModelSection), ("rl", RlSection)):
            for key in ADDED[name] if content[name] is not None else ():
                if content[name][key] == kind.model_fields[key].default:
                    del content[name][key]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
