"""Policy times task gives judged groups. Training and evaluation both use this and nothing else.

The seed's teams sampled in one place for training and in another for evaluation, and the two drifted apart (10
denoising steps against 64, greedy against sampled). Here both call `collect`.
"""

from collections.abc import Sequence

from plumbline.errors import DataError
from plumbline.policies.policy import Policy
from plumbline.records import Example, Failure, Group, Outcome, Rollout, Sampling, Score, Trajectory
from plumbline.tasks.task import Task


def judge(task: Task, example: Example, completion: str) -> tuple[Outcome, Score | None, Failure | None]:
    """Judge one completion; a verifier that breaks is a counted failure with its cause, never a reward of 0.

    This is the one place in the package that catches every exception: beyond it lies a task's own code, fed with
    whatever a model wrote.
    """
    try:
        outcome, score = task.judge(example, completion)
    except Exception as error:  # noqa: BLE001 - the boundary to a task's code, see above
        return Outcome(how="failed"), None, Failure(cause=type(error).__name__, detail=str(error)[:500])
    return outcome, score, None


def collect(
    policy: Policy, task: Task, examples: Sequence[Example], *, copies: int, sampling: Sampling, seed: int
) -> list[Group]:
    """Sample `copies` answers to each example and judge them.

    Returns:
        One group an example, in the order of the examples.
    """
    drawn = policy.sample([example.messages for example in examples], copies, sampling, seed)
    return [
        Group(example=example, rollouts=tuple(_judged(task, example, trajectory) for trajectory in trajectories))
        for example, trajectories in zip(examples, drawn, strict=True)
    ]


def check_prompts(policy: Policy, examples: Sequence[Example], sampling: Sampling) -> None:
    """Fail before anything is trained where a prompt and its answer would not fit into the model's context.

    Raises:
        DataError: names the longest such example, and how many there are.
    """
    lengths = [policy.prompt_length(example.messages) for example in examples]
    too_long = [index for index, length in enumerate(lengths) if length + sampling.max_tokens > policy.context]
    if too_long:
        worst = max(too_long, key=lengths.__getitem__)
        raise DataError(
            f"{len(too_long)} of {len(examples)} prompts do not fit: {examples[worst].id} has {lengths[worst]} tokens, "
            f"and with an answer of up to {sampling.max_tokens} exceeds the context of {policy.context}",
            "lower sampling.max_tokens, shorten the prompts, or use a model with a longer context",
        )


def _judged(task: Task, example: Example, trajectory: Trajectory) -> Rollout:
    outcome, score, failure = judge(task, example, trajectory.text)
    return Rollout(trajectory=trajectory, outcome=outcome, score=score, failure=failure)
