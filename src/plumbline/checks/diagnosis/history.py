"""What is known of one stage of a run, in one vocabulary, whoever made it.

Names of series, each with a value a logged step:

    reward, reward_std      of the rollouts of a step; its standard deviation, within groups where that was logged
    frac_reward_zero_std    share of groups whose rewards are all equal
    reward/NAME, reward_std/NAME             the same of a part of the reward
    reading/NAME, task/NAME                  other readings of the reward; the reward of each of several tasks
    completion_length, completion_length_max, completion_length_terminated        tokens
    frac_truncated, frac_failed, frac_prompts_truncated    completions that the limit cut, or that nobody could judge;
                            prompts that their limit cut
    num_eos_tokens          how many answers of a step end by themselves
    prompt_length           mean tokens of prompts
    entropy                 nats a token
    kl, kl_sum, kl_update   to the reference, a token; of a whole answer; of the policy to itself before the update
    clip_fraction, importance_ratio_mean, importance_ratio_min, importance_ratio_max    of the loss
    logprob_gap, logprob_gap_max             mean absolute difference in nats of a choice's log-probability between
                            sampler and scorer
    mismatch_kl             KL divergence between sampler and scorer in nats a token, by whatever estimator was logged
    loss, grad_norm, learning_rate, epoch, token_accuracy    the gradient's norm before clipping
    advantage_std, repetition                standard deviation of the advantages; share of a text that repeats
    text_nll                nats a token of texts that are held out, and no loss of the training
    epoch/TASK, step_time   of each of several tasks; seconds of a step
    grad_signal, grad_noise in the squared norm of a step's gradient
    correctness/NAME        what says whether answers are right, and is no reward: an accuracy, a pass rate
    preference/NAME         margin, accuracy, chosen, rejected, logps_chosen, logps_rejected: of pairs
    eval/reward, eval/loss, eval/NAME        evaluations inside training; eval/reward/SET and eval/loss/SET of several
                            sets, eval/preference/NAME of held-out pairs; where no eval/reward was logged, it is the
                            mean of the others
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from plumbline.checks.check import Context
from plumbline.records import Evaluation, FloatArray, IntArray, group_by_key

Kind = Literal["rl", "sft"]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """The logged values of one name: steps [n], ascending, and values [n], which may be NaN or
    infinite."""

    steps: IntArray
    values: FloatArray
    rounding: float = 0.0
    """The most that printing changed a value by: half a unit of the last printed digit; 0 where
    nothing was rounded."""
    counted: bool = True
    """Whether the steps were logged; else rows are numbered, and how many steps each stands for is
    unknown."""

    def __len__(self) -> int:
        return len(self.values)

    @staticmethod
    def of_means(values: Mapping[int, Sequence[float]]) -> "Series":
        """The means of what each step has."""
        steps = sorted(values)
        return Series(np.array(steps), np.array([np.mean(values[step]) for step in steps]))

    @property
    def finite(self) -> tuple[IntArray, FloatArray]:
        """The steps and values of those that are finite."""
        good = np.isfinite(self.values)
        return self.steps[good], self.values[good]

    @property
    def finite_values(self) -> FloatArray:
        """The values that are neither NaN nor infinite."""
        return self.finite[1]

    def since(self, step: int) -> "Series":
        """From a step on."""
        return replace(
            self, steps=self.steps[self.steps >= step], values=self.values[self.steps >= step]
        )

    def at(self, step: int) -> FloatArray:
        """The value of a step [1]; [0] where none was logged."""
        place, end = np.searchsorted(self.steps, [step, step + 1])
        return self.values[place:end]

    def last(self, count: int) -> "Series":
        """The last so many."""
        return replace(self, steps=self.steps[-count:], values=self.values[-count:])


EMPTY = Series(np.array([], dtype=np.int64), np.array([]))


@dataclass(frozen=True, slots=True)
class Sample:
    """A stored completion of training."""

    step: int
    prompt: str
    """Its id, or its text: equal for the completions of a group."""
    text: str
    reward: float | None
    """None where nobody could judge it."""
    truncated: bool | None = None
    parts: Mapping[str, float | None] = field(default_factory=dict)
    gold: str = ""
    """The answer that is right, where the user stores it."""
    mode: str = ""
    """train or eval, where the user stores it, or where the log tells it."""
    kind: str = ""
    """Of the prompt: its task, source or level, where the user stores it."""
    others: Mapping[str, float] = field(default_factory=dict)
    """Numbers that were stored with it and are no part of the reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """An evaluation before or after training, or of the oracle or a baseline."""

    stage: str
    split: str
    mode: str
    """greedy, sampled, voteN; of a baseline its name."""
    task: str
    evaluation: Evaluation

    @property
    def where(self) -> str:
        """Its task and split, for people."""
        return f"{self.task} {self.split}".strip()


@dataclass(frozen=True, kw_only=True)
class History(Context):
    """One stage of a run. What is not known is not there."""

    origin: str
    """Whose records these are: plumbline, trl, wandb, tensorboard, a table."""
    name: str
    """Of the stage, or the run's."""
    kind: Kind
    series: Mapping[str, Series]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Known ones, by their key in a recipe (`rl.beta`, `sampling.temperature`, `model.lora.rank` of
    an adapter, or "unknown" for its rank), and `steps` that were planned."""
    samples: Sequence[Sample] = ()
    """Of training."""
    evaluated: Sequence[Sample] = ()
    """Stored completions of evaluations inside training."""
    finals: Sequence[Final] = ()
    finished: bool | None = None
    """None where nobody can tell."""
    skipped: int = 0
    """Lines of the records, or cells of a table, that could not be read."""
    remarks: Sequence[str] = ()
    """What else was not read, or is a guess, for people."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What another trainer calls keys of a recipe; empty for our own runs."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """Which option of the trainer logs a need of checks."""

    def has(self, need: str) -> bool:
        """See `diagnosis.rule.rule` for the names of needs."""
        if need == "samples":
            return bool(self.samples)
        if need == "golds":
            return any(sample.gold for sample in self.samples)
        if need == "evaluated":
            return bool(self.evaluated)
        if need == "filters":
            some = ("sampling.top_", "sampling.min_p", "sampling.repetition_penalty", "drawn.")
            return any(key.startswith(some) for key in self.settings)
        if need == "finals":
            return bool(self.finals)
        if need == "prompts":
            return 2 * sum(" " in sample.prompt for sample in self.samples) > len(self.samples)
        return bool(self.names(need)) if need.endswith("/") else len(self[need]) > 0

    @property
    def option_names(self) -> Mapping[str, str]:
        """See `Context.option_names`."""
        return self.options

    def __getitem__(self, name: str) -> Series:
        if name == "eval/reward" and name not in self.series:
            return self._held_out
        return self.series.get(name, EMPTY)

    @cached_property
    def _held_out(self) -> Series:
        """The mean of evaluations by other names."""
        names = [name for name in self.names("eval/") if not re.search("loss|length|pref", name)]
        return Series.of_means(
            group_by_key(
                (int(step), value)
                for name in names
                for step, value in zip(*self[f"eval/{name}"].finite, strict=True)
            )
        )

    def names(self, prefix: str) -> list[str]:
        """What follows a prefix in the names of series."""
        return sorted(name.removeprefix(prefix) for name in self.series if name.startswith(prefix))

    @property
    def parts(self) -> dict[str, Series]:
        """The logged parts of the reward, by their name."""
        return {name: self[f"reward/{name}"] for name in self.names("reward/")}

    @property
    def reward_names(self) -> list[str]:
        """The series of the reward, and those of its parts."""
        return ["reward", *(f"reward/{name}" for name in self.parts)]

    @property
    def last_step(self) -> int:
        """The last step that anything was logged of; 0 for none."""
        return max((int(one.steps[-1]) for one in self.series.values() if len(one)), default=0)

    @property
    def dating_error(self) -> int:
        """Ten logged rows, which most rules look at together."""
        return 10 * -(-self.last_step // max(1, self.logged_steps))

    @property
    def logged_steps(self) -> int:
        """How many steps something of the training was logged of."""
        trained = (one for name, one in self.series.items() if not name.startswith("eval/"))
        return max((len(one) for one in trained), default=0)
