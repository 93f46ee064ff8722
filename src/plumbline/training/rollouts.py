"""Sampler times task gives judged groups. Training and evaluation both use this and nothing else.

Two places that sample drift apart (10 denoising steps in one against 64 in the other, greedy against sampled), so both
call `collect`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from plumbline.errors import DataError
from plumbline.policies.policy import Sampler
from plumbline.records import Example, Group, Key, Request, Rollout, Sampling, Trajectory
from plumbline.tasks.task import Task
from plumbline.training.judging import Judging


def collect(
    sampler: Sampler, task: Task, examples: Sequence[Example], *, copies: int, sampling: Sampling, key: Key
) -> list[Group]:
    """Go through `copies` episodes of each example, and judge each answer as soon as it is finished.

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
    return collect_parts(sampler, [Part(task, examples, key)], copies=copies, sampling=sampling)[0]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What is collected of one task: see `collect`."""

    task: Task
    examples: Sequence[Example]
    key: Key


def collect_parts(sampler: Sampler, parts: Sequence[Part], *, copies: int, sampling: Sampling) -> list[list[Group]]:
    """`collect` for several tasks, whose requests are drawn together: on a GPU a call takes about as long as its
    longest answer, so the tasks' calls one after the other would take the sum of theirs.

    All episodes that are not over are asked together, turn by turn. One whose next prompt does not fit into the context
    ends there, with what its answers came to so far (`Rollout.cut`).

    Returns:
        The groups of each part, in their order.
    """
    with ExitStack() as stack:
        episodes = [_Episodes(part, copies, stack.enter_context(Judging(part.task, part.examples))) for part in parts]
        owner = {key: one for one in episodes for key in one.place}
        requests = [request for one in episodes for request in one.begin(sampling)]
        while requests:
            for request, trajectory in sampler.sample(requests):
                owner[request.key[:-1]].tell(request, trajectory)
            requests = [request for one in episodes for request in one.go_on(sampler, sampling)]
    return [one.groups() for one in episodes]


class _Episodes:
    """The episodes of one task's examples, `copies` of each."""

    def __init__(self, part: Part, copies: int, judging: Judging) -> None:
        self.part, self.copies, self.judging = part, copies, judging
        seen: Counter[str] = Counter()
        self.keys: list[Key] = []  # of each episode; the turn follows
        for example in part.examples:
            first = seen[example.id]
            self.keys += [(*part.key, example.id, copy) for copy in range(first, first + copies)]
            seen[example.id] += copies
        self.place = {key: index for index, key in enumerate(self.keys)}
        self.turns: list[list[Trajectory]] = [[] for _ in self.keys]
        self.asked: list[list[str]] = [[] for _ in self.keys]
        self.cut: set[int] = set()
        self.turn = 0

    def begin(self, sampling: Sampling) -> Iterator[Request]:
        """The first request of each."""
        for index, key in enumerate(self.keys):
            yield Request((*key, 0), self.part.examples[index // self.copies].messages, sampling)

    def tell(self, request: Request, trajectory: Trajectory) -> None:
        """Have an answer judged."""
        index = self.place[request.key[:-1]]
        self.turns[index].append(trajectory)
        self.judging.tell(*divmod(index, self.copies), trajectory.text)

    def go_on(self, sampler: Sampler, sampling: Sampling) -> Iterator[Request]:
        """What those ask next that are not over, once all answers of this turn are judged."""
        self.turn += 1
        if self.turn >= self.part.task.turns:
            return
        for (prompt, copy), messages in sorted(self.judging.asked().items(), key=lambda item: item[0]):
            index = prompt * self.copies + copy
            if sampler.prompt_length(messages) + sampling.max_tokens > sampler.context:
                self.cut.add(index)
                continue
            self.asked[index].append(messages[-1]["content"])
            yield Request((*self.keys[index], self.turn), messages, sampling)

    def groups(self) -> list[Group]:
        """One group an example, once all is judged."""
        rollouts = []
        for index, answers in enumerate(self.turns):
            outcome, score, failure = self.judging.verdict(*divmod(index, self.copies))
            rollouts.append(
                Rollout(
                    turns=tuple(answers),
                    outcome=outcome,
                    score=score,
                    failure=failure,
                    asked=tuple(self.asked[index]),
                    cut=index in self.cut,
                )
            )
        return [
            Group(example=example, rollouts=tuple(rollouts[index * self.copies : (index + 1) * self.copies]))
            for index, example in enumerate(self.part.examples)
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
