"""Sampler times task gives judged groups. Training and evaluation both use this and nothing else.

The seed's teams sampled in one place for training and in another for evaluation, and the two drifted apart (10
denoising steps against 64, greedy against sampled). Here both call `collect`.
"""

from collections import Counter
from collections.abc import Sequence

from plumbline.errors import DataError
from plumbline.judging import Judging
from plumbline.policies.policy import Sampler
from plumbline.records import Example, Group, Key, Request, Rollout, Sampling, Trajectory
from plumbline.tasks.task import Task


def collect(
    sampler: Sampler, task: Task, examples: Sequence[Example], *, copies: int, sampling: Sampling, key: Key
) -> list[Group]:
    """Sample `copies` answers to each example and judge them, each as soon as it is finished.

    Args:
        sampler: draws.
        task: judges.
        examples: one may come several times (an epoch that ends within a step); its copies are then numbered on.
        copies: of each, G.
        sampling: the law.
        key: what each request's key begins with; the example's id, the copy's number and the turn follow.

    Returns:
        One group an example, in the order of the examples.
    """
    asked: Counter[str] = Counter()
    requests: list[Request] = []
    for example in examples:
        first = asked[example.id]
        asked[example.id] += copies
        requests += [
            Request((*key, example.id, copy, 0), example.messages, sampling) for copy in range(first, first + copies)
        ]
    place = {request.key: index for index, request in enumerate(requests)}
    drawn: dict[int, Trajectory] = {}
    with Judging(task, examples) as judging:
        for request, trajectory in sampler.sample(requests):
            index = place[request.key]
            drawn[index] = trajectory
            judging.tell(*divmod(index, copies), trajectory.text)
    rollouts = [_judged(judging, *divmod(index, copies), drawn[index]) for index in range(len(requests))]
    return [
        Group(example=example, rollouts=tuple(rollouts[index * copies : (index + 1) * copies]))
        for index, example in enumerate(examples)
    ]


def check_prompts(sampler: Sampler, examples: Sequence[Example], sampling: Sampling) -> None:
    """Fail before anything is trained where a prompt and its answer would not fit into the model's context.

    Raises:
        DataError: names the longest such example, and how many there are.
    """
    lengths = [sampler.prompt_length(example.messages) for example in examples]
    too_long = [index for index, length in enumerate(lengths) if length + sampling.max_tokens > sampler.context]
    if too_long:
        worst = max(too_long, key=lengths.__getitem__)
        raise DataError(
            f"{len(too_long)} of {len(examples)} prompts do not fit: {examples[worst].id} has {lengths[worst]} tokens, "
            f"and with an answer of up to {sampling.max_tokens} exceeds the context of {sampler.context}",
            "lower sampling.max_tokens, shorten the prompts, or use a model with a longer context",
        )


def _judged(judging: Judging, prompt: int, copy: int, trajectory: Trajectory) -> Rollout:
    outcome, score, failure = judging.verdict(prompt, copy)
    return Rollout(trajectory=trajectory, outcome=outcome, score=score, failure=failure)
