"""Policy times task gives judged groups. Training and evaluation both use this and nothing else.

The seed's teams sampled in one place for training and in another for evaluation, and the two drifted apart (10
denoising steps against 64, greedy against sampled). Here both call `collect`.
"""

from collections.abc import Sequence

from plumbline.errors import DataError
from plumbline.judging import Judging
from plumbline.policies.policy import Policy
from plumbline.records import Example, Group, Rollout, Sampling, Trajectory
from plumbline.tasks.task import Task


def collect(
    policy: Policy, task: Task, examples: Sequence[Example], *, copies: int, sampling: Sampling, seed: int
) -> list[Group]:
    """Sample `copies` answers to each example and judge them, each as soon as it is finished.

    Returns:
        One group an example, in the order of the examples.
    """
    with Judging(task, examples) as judging:
        drawn = policy.sample([example.messages for example in examples], copies, sampling, seed, judging.tell)
    return [
        Group(
            example=example,
            rollouts=tuple(_judged(judging, index, copy, trajectory) for copy, trajectory in enumerate(trajectories)),
        )
        for index, (example, trajectories) in enumerate(zip(examples, drawn, strict=True))
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


def _judged(judging: Judging, prompt: int, copy: int, trajectory: Trajectory) -> Rollout:
    outcome, score, failure = judging.verdict(prompt, copy, trajectory.text)
    return Rollout(trajectory=trajectory, outcome=outcome, score=score, failure=failure)
