"""Sampler times task gives judged groups. Training and evaluation both use this and nothing else.

Two places that sample drift apart (10 denoising steps in one against 64 in the other, greedy against sampled), so both
call `collect`.
"""

from collections import Counter
from collections.abc import Sequence

from plumbline.errors import DataError
from plumbline.judging import Judging
from plumbline.policies.policy import Sampler
from plumbline.records import Example, Group, Key, Request, Rollout, Sampling, Trajectory
from plumbline.tasks.task import Task, turns_of


def collect(
    sampler: Sampler, task: Task, examples: Sequence[Example], *, copies: int, sampling: Sampling, key: Key
) -> list[Group]:
    """Go through `copies` episodes of each example, and judge each answer as soon as it is finished.

    All episodes that are not over are asked together, turn by turn. One whose next prompt does not fit into the context
    ends there, with what its answers came to so far (`Rollout.cut`).

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
    seen: Counter[str] = Counter()
    keys: list[Key] = []  # of each episode; the turn follows
    for example in examples:
        keys += [(*key, example.id, copy) for copy in range(seen[example.id], seen[example.id] + copies)]
        seen[example.id] += copies
    place = {each: index for index, each in enumerate(keys)}
    turns: list[list[Trajectory]] = [[] for _ in keys]
    asked: list[list[str]] = [[] for _ in keys]
    cut: set[int] = set()
    requests = [Request((*k, 0), examples[index // copies].messages, sampling) for index, k in enumerate(keys)]
    with Judging(task, examples) as judging:
        for turn in range(1, turns_of(task) + 1):
            for request, trajectory in sampler.sample(requests):
                index = place[request.key[:-1]]
                turns[index].append(trajectory)
                judging.tell(*divmod(index, copies), trajectory.text)
            if turn == turns_of(task):
                break
            requests = []
            for (prompt, copy), messages in sorted(judging.asked().items(), key=lambda item: item[0]):
                index = prompt * copies + copy
                if sampler.prompt_length(messages) + sampling.max_tokens > sampler.context:
                    cut.add(index)
                    continue
                asked[index].append(messages[-1]["content"])
                requests.append(Request((*keys[index], turn), messages, sampling))
            if not requests:
                break
    rollouts = []
    for index, answers in enumerate(turns):
        outcome, score, failure = judging.verdict(*divmod(index, copies))
        rollouts.append(
            Rollout(
                turns=tuple(answers),
                outcome=outcome,
                score=score,
                failure=failure,
                asked=tuple(asked[index]),
                cut=index in cut,
            )
        )
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
