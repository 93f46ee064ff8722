"""Environments of verifiers (https://github.com/PrimeIntellect-ai/verifiers, API v1) as tasks, by
their own rewards.

Written against verifiers 0.4.0. An environment here is a taskset whose tasks are asked once: a
prompt of texts, and rewards that are functions of the answer. What needs a model, a tool, a box or
a second turn is refused.
"""

import asyncio
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import Field

from plumbline.adapters.split_task import SplitOptions, SplitTask
from plumbline.config.imports import check_consent, code_file, import_needed
from plumbline.errors import DataError, RecipeError, RewardError
from plumbline.recipe import section
from plumbline.records import Example, Message, Outcome, Score
from plumbline.rollouts.reward_workers import judge
from plumbline.tasks import Progress
from plumbline.tasks.cases import TEMPLATES

WHAT = "the task verifiers"
TRIED = 8
"""Answers that a form of gold answers is tried on."""


class VerifiersOptions(SplitOptions):
    """Options of the task verifiers; `size` is the most tasks that are read."""

    environment: str
    """An installed package that exports a taskset, as `verifiers` names it."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Of the taskset's configuration."""
    gold: str | None = None
    """A template of the task data's fields, such as `\\boxed{{{answer}}}`. None: the field
    `answer`, as it is or in a usual form, where it earns all; else there are no gold answers."""


def open_verifiers(options: Mapping[str, Any], folder: Path, progress: Progress) -> "VerifiersTask":  # noqa: ARG001
    """Open an environment, whose module is imported; its tasks are read when examples are first
    asked for.

    Raises:
        RecipeError: verifiers is not installed, there is no such environment, it does not take
            these arguments, or its answers cannot be judged without a model, tools, a box or
            further turns.
        UntrustedCodeError: a file names it, and the user did not consent.
    """
    known = ", ".join(VerifiersOptions.model_fields)
    advice = f"the task verifiers needs environment, and knows {known}"
    return VerifiersTask(section(VerifiersOptions, options, inside="task.options.", advice=advice))


open_verifiers.part = "environment"  # type: ignore[attr-defined]


class VerifiersTask(SplitTask):
    """One environment. The parts are its rewards; weights are its own, and the total goes from 0
    (the lowest sum) to 1 (the highest)."""

    def __init__(self, options: VerifiersOptions) -> None:
        super().__init__(options)
        self.options, self.name = options, options.environment
        self._vf = import_needed("verifiers.v1", WHAT, RecipeError)
        loaders = import_needed("verifiers.v1.utils.loaders", WHAT, RecipeError)
        self._state = import_needed("verifiers.v1.state", WHAT, RecipeError).state_cls
        module = options.environment.rpartition("/")[2].partition("@")[0].replace("-", "_").lower()
        check_consent(
            f"verifiers:{module}",
            f"the environment {module}",
            options.environment,
            code_file(module),
        )
        try:
            config = loaders.taskset_config_type(options.environment)(
                id=options.environment, **options.args
            )
            self._taskset = loaders.load_taskset(config)
            env = loaders.environment_class(options.environment)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise RecipeError(
                f"cannot open the environment {options.environment}: {error}",
                "install the environment's package, and see its configuration class for "
                "task.options.args",
            ) from error
        if env is not self._vf.SingleAgentEnv:
            raise self._unsuitable_error(f"its {env.__name__} asks otherwise than once")
        self._tasks: dict[str, Any] = {}

    def _unsuitable_error(self, why: str) -> RecipeError:
        return RecipeError(
            f"the environment {self.name} cannot be judged here: {why}",
            "only tasks that are asked once, in text, and judged by functions of the answer alone "
            "are taken",
        )

    def _check(self, task: Any) -> None:
        """Refuse a task that needs more than its answer.

        Raises:
            RecipeError: it does.
        """
        if task.plugged_judges():
            raise self._unsuitable_error("a model judges its answers")
        if task.NEEDS_CONTAINER or task.data.image:
            raise self._unsuitable_error("it needs a container")
        if type(task).toolsets(task.config) or type(self._taskset).toolsets(self._taskset.config):
            raise self._unsuitable_error("it has tools")
        rewards = task.hooks("reward")
        if not rewards:
            raise self._unsuitable_error("it has no rewards")
        if (
            type(task).setup is not self._vf.Task.setup
            or type(task).finalize is not self._vf.Task.finalize
        ):
            raise self._unsuitable_error("it prepares a runtime")
        for function in rewards:
            parameter = inspect.signature(function).parameters.get("runtime")
            if parameter is not None and parameter.default is parameter.empty:
                raise self._unsuitable_error(f"its reward {function.__name__} looks into a runtime")

    @property
    def rubric(self) -> str:
        """See `Task.rubric`: the environment and the version of verifiers."""
        return f"verifiers/{self.name}/{version('verifiers')}"

    def load(self) -> Iterable[Example]:
        """See `SplitTask.load`."""
        examples = []
        for number, task in enumerate(islice(iter(self._taskset), self.options.size)):
            if not number:
                self._check(task)
            self._tasks[name := f"{self.name}-{number}"] = task
            data = task.data.model_dump(mode="json")
            examples.append(Example(id=name, messages=self._messages(data), reference=data))
        if self.options.gold is not None:
            return [
                replace(one, gold=self._fill_template(self.options.gold, one)) for one in examples
            ]
        for template in ("{}", *TEMPLATES):
            answered = [
                replace(one, gold=template.format(one.reference.get("answer"))) for one in examples
            ]
            scores = [judge(self, one, one.gold or "")[1] for one in answered[:TRIED]]
            if "answer" in examples[0].reference and all(
                score and score.total == 1 for score in scores
            ):
                return answered
        return examples

    def _messages(self, data: Mapping[str, Any]) -> list[Message]:
        prompt: Any = data["prompt"]
        asked: list[Any] = (
            [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt or []
        )
        if data["system_prompt"] is not None:
            asked = [{"role": "system", "content": data["system_prompt"]}, *asked]
        roles = ("system", "user", "assistant")
        if not asked or any(
            one["role"] not in roles or not isinstance(one["content"], str) for one in asked
        ):
            raise self._unsuitable_error(
                "a prompt is no text, or messages of other kinds than texts"
            )
        return [Message(role=one["role"], content=one["content"]) for one in asked]

    @staticmethod
    def _fill_template(template: str, example: Example) -> str:
        try:
            return template.format_map(example.reference)
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise DataError(
                f"task.options.gold is {template!r}, and {example.id} does not fill it: "
                f"{type(error).__name__} {error}",
                f"the task data have {', '.join(example.reference)}",
            ) from error

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Task.judge`: the rewards of the environment; its metrics are facts.

        Raises:
            RewardError: a reward lies outside of [0, 1].
            Exception: what a reward raises: a counted failure.
        """
        task, trace = self._tasks[example.id], self._trace(example, completion)
        asyncio.run(task.score(trace))
        rewards = {name: one for name, one in trace.rewards.items() if one is not None}
        if strange := [
            f"{name} {one.score}" for name, one in rewards.items() if not 0 <= one.score <= 1
        ]:
            raise RewardError(
                f"{self.name} gives {', '.join(strange)}: rewards lie between 0 and 1 here",
                "scale it in the environment, or replace it in task.options.args (task.rewards)",
            )
        weights = [one.weight for one in rewards.values()]
        low, high = sum(min(0.0, one) for one in weights), sum(max(0.0, one) for one in weights)
        if high <= low:
            raise RewardError(f"all rewards of {self.name} weigh 0", "give one a weight")
        total = min(1.0, max(0.0, (trace.reward - low) / (high - low)))
        parts = {name: one.score for name, one in rewards.items()}
        return Outcome(how="text", facts=dict(trace.metrics)), Score(
            total=total, parts=parts, rubric=self.rubric
        )

    def _trace(self, example: Example, completion: str) -> Any:
        """The record of an exchange that ended with this answer."""
        vf, task = self._vf, self._tasks[example.id]
        roles = {
            "system": vf.SystemMessage,
            "user": vf.UserMessage,
            "assistant": vf.AssistantMessage,
        }
        asked = [roles[one["role"]](content=one["content"]) for one in example.messages]
        messages = [*asked, vf.AssistantMessage(content=completion)]
        nodes = [
            vf.MessageNode(parent=at - 1 if at else None, message=one, sampled=at == len(asked))
            for at, one in enumerate(messages)
        ]
        return vf.Trace(
            task=vf.TraceTask(type=type(task).__name__, data=task.data),
            agent=vf.AgentInfo(config=vf.AgentConfig()),
            state=self._state(type(task))(),
            nodes=nodes,
            is_completed=True,
            ok=True,
            stop_condition="agent_completed",
        )
