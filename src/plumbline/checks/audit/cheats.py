"""The cheapest cheat: a search for a text, or a rule that makes texts of prompts, that earns much
and knows nothing.

An answer is made of pieces: texts, and rules. It is begun from what the task's baselines answer to
other examples, from other examples' gold answers and from rules alone, and is cut, repeated,
joined, crossed and changed value by value. What is sought on some examples is measured on others,
so that the best of many is not taken for good by chance; the gold answers of neither are looked at.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from plumbline.checks.audit.scoring_runner import Cheat, ScoringRunner
from plumbline.checks.audit.texts import dump_json, parse_object
from plumbline.evaluation.statistics import mean_interval
from plumbline.records import Example, clusters_of
from plumbline.seeds import generator
from plumbline.tasks.cases import Case
from plumbline.tasks.task import Baseline

VERDICTS, SECONDS = 12_000, 15.0
"""What the search may take, whichever is reached first."""
GLANCE, SEEKING, MEASURING = 6, 48, 100
"""Examples that show whether an answer is worth more, that are sought on, and that the best are
measured on."""
KEPT, FINALISTS = 12, 4
PIECES, IDLE = 4, 10
"""Pieces of an answer, at most; generations without a change of what is kept, after which the
search ends."""
LENGTH = 3000
"""Characters of an answer, at most."""

RULES: Mapping[str, Callable[[str], str]] = {
    "<the prompt>": lambda prompt: prompt,
    "<the prompt's first line>": lambda prompt: prompt.strip().split("\n")[0],
    "<the prompt's last line>": lambda prompt: prompt.strip().split("\n")[-1],
    "<the prompt's longest line>": lambda prompt: max(prompt.split("\n"), key=len),
    "<the prompt's labelled lines>": lambda prompt: "\n".join(
        re.findall(r"^[^\n:]{1,60}:.*$", prompt, re.MULTILINE)
    ),
    "<the prompt's last labelled value>": lambda prompt: "".join(
        re.findall(r":[ \t]*(\S[^\n]*)", prompt)[-1:]
    ),
    "<the prompt's quoted texts>": lambda prompt: "\n".join(
        re.findall(r"[\"“']([^\"”'\n]{1,200})[\"”']", prompt)
    ),
    "<the prompt's numbers>": lambda prompt: " ".join(re.findall(r"-?\d+(?:[.,]\d+)*", prompt)),
    "<the prompt's last number>": lambda prompt: "".join(
        re.findall(r"-?\d+(?:[.,]\d+)*", prompt)[-1:]
    ),
    "<the prompt's capitalised words>": lambda prompt: " ".join(
        re.findall(r"\b[^\W\d_a-z]\w+", prompt)
    ),
    "<the prompt's braces>": lambda prompt: "".join(
        re.findall(r"\A[^{]*+(\{.*\})", prompt, re.DOTALL)
    ),
}
"""What can be made of the prompt's last message without understanding it."""

Answer = tuple[str, ...]
"""Pieces: texts, and names of rules."""


def cheapest_cheat(
    runner: ScoringRunner, examples: Sequence[Example], baselines: Mapping[str, Baseline], seed: int
) -> Cheat | None:
    """Search; None where there are too few examples, or verdicts that do not come.

    Args:
        runner: judges.
        examples: of the task, in any order; a part of them lends gold answers and is not answered.
        baselines: of the task.
        seed: of everything that is drawn.
    """
    if len(examples) < 3:
        return None
    rng = generator(seed, "audit", "cheat")
    order = [examples[place] for place in rng.permutation(len(examples))]
    third = max(1, len(order) // 3)
    seeking, measuring, lending = (
        order[:third][:SEEKING],
        order[third : 2 * third][:MEASURING],
        order[2 * third :],
    )
    search = _Search(runner, seeking)
    population = list(_first_answers(lending, baselines))
    crowd = [population[place] for place in rng.permutation(len(population))]
    best, idle = search.keep_best(population), 0
    joined: set[Answer] = set()
    while search.goes_on() and idle < IDLE:
        if best[0] in joined:
            children = [_mutate_answer(best, crowd, rng) for _ in range(4 * KEPT)]
        else:  # a new best is put together with everything once
            joined.add(best[0])
            children = [_join_pieces(best[0], other) for other in crowd]
        before, best = best, search.keep_best([*best, *children])
        idle = idle + 1 if best == before else 0
    if runner.ended:
        return None
    finals = {
        answer: [search.judge(one, answer) for one in measuring] for answer in best[:FINALISTS]
    }
    answer = max(finals, key=lambda one: sum(finals[one]))
    return Cheat(
        rule="\n".join(answer),
        rewards=tuple(finals[answer]),
        interval=mean_interval(finals[answer], clusters_of(measuring)),
        example=measuring[0].id,
        text=text_for(answer, measuring[0]),
        verdicts=search.count,
    )


def text_for(answer: Answer, example: Example) -> str:
    """What an answer says to an example."""
    prompt = example.messages[-1]["content"]
    return "\n".join(RULES[one](prompt) if one in RULES else one for one in answer)[:LENGTH]


class _Search:
    """What answers earn on the examples that are sought on, remembered."""

    def __init__(self, runner: ScoringRunner, examples: Sequence[Example]) -> None:
        self.runner, self.examples = runner, examples
        self.earned: dict[Answer, float] = {}
        self.count, self.least = 0, 0.0
        self.began = time.monotonic()

    def goes_on(self) -> bool:
        self.runner.progress("search for cheats", min(self.count, VERDICTS), VERDICTS)
        return (
            self.count < VERDICTS
            and time.monotonic() - self.began < SECONDS
            and not self.runner.ended
        )

    def judge(self, example: Example, answer: Answer) -> float:
        self.count += 1
        return self.runner.judge_once(Case(example, "a cheat", text_for(answer, example))).reward

    def keep_best(self, answers: Sequence[Answer]) -> list[Answer]:
        """The `KEPT` answers that earn most; of equals the shorter."""
        for answer in answers:
            if answer not in self.earned and self.goes_on():
                self.earned[answer] = self._earns(answer)
        known = {answer: None for answer in answers if answer in self.earned}
        kept = sorted(known, key=lambda one: (-self.earned[one], sum(map(len, one))))[:KEPT]
        self.least = self.earned[kept[-1]] if len(kept) == KEPT else 0.0
        return kept

    def _earns(self, answer: Answer) -> float:
        """The mean over the examples; of the first few alone where those earn far less than what is
        kept already."""
        rewards = [self.judge(one, answer) for one in self.examples[:GLANCE]]
        if sum(rewards) / len(rewards) >= 0.75 * self.least:
            rewards += [self.judge(one, answer) for one in self.examples[GLANCE:]]
        return sum(rewards) / len(rewards)


def _first_answers(
    lending: Sequence[Example], baselines: Mapping[str, Baseline]
) -> Iterator[Answer]:
    """What the search begins with."""
    yield from ((rule,) for rule in RULES)
    golds = [example.gold for example in lending if example.gold is not None]
    common = [gold for gold, _ in Counter(golds).most_common()]
    if golds:
        yield ("\n".join(common)[:LENGTH],)
        if objects := [one for one in map(parse_object, golds) if one]:
            values = {
                key: Counter(dump_json({key: one[key]}) for one in objects if key in one)
                for key in objects[0]
            }
            usual = {
                key: parse_object(found.most_common(1)[0][0])[key] for key, found in values.items()
            }
            yield (dump_json(usual),)
    for baseline in baselines.values():
        yield from ((text,) for text, _ in Counter(baseline(lending[:24])).most_common(4))
    yield from ((gold,) for gold in common[:24])


def _join_pieces(first: Answer, second: Answer) -> Answer:
    """One after the other; texts that meet become one."""
    if first[-1] in RULES or second[0] in RULES:
        return (*first, *second)[:PIECES]
    return (*first[:-1], f"{first[-1]}\n{second[0]}"[:LENGTH], *second[1:])[:PIECES]


def _mutate_answer(
    best: Sequence[Answer], crowd: Sequence[Answer], rng: np.random.Generator
) -> Answer:
    """A change of one of the best, often with something of any other."""

    def of(answers: Sequence[Answer]) -> Answer:
        return answers[int(rng.integers(len(answers)))]

    answer, other = of(best), of(best) if rng.random() < 0.5 else of(crowd)
    if rng.random() < 0.4:
        return _join_pieces(answer, other) if rng.random() < 0.5 else _join_pieces(other, answer)
    if len(answer) > 1 and rng.random() < 0.3:
        left_out = int(rng.integers(len(answer)))
        return (*answer[:left_out], *answer[left_out + 1 :])
    place = int(rng.integers(len(answer)))
    piece = answer[place]
    if not piece or piece in RULES:
        changed = of(crowd)[0]
    else:
        changed = _change_text(piece, "" if other[0] in RULES else other[0], rng)
    return (*answer[:place], changed, *answer[place + 1 :])


def _change_text(text: str, other: str, rng: np.random.Generator) -> str:
    """A text cut, repeated, crossed with another, or with values of another."""
    first, second = parse_object(text), parse_object(other)
    if first and second and rng.random() < 0.7:
        return dump_json(
            {
                key: second[key] if key in second and rng.random() < 0.3 else one
                for key, one in first.items()
            }
        )
    if first and rng.random() < 0.5:
        left_out = list(first)[int(rng.integers(len(first)))]
        return dump_json({key: one for key, one in first.items() if key != left_out})
    lines, others = text.split("\n"), other.split("\n")
    if len(lines) < 2:
        lines, others = text.split(" "), other.split(" ")
    mark = "\n" if "\n" in text else " "
    at = int(rng.integers(len(lines) + 1))
    ways: list[Callable[[], str]] = [
        lambda: mark.join(lines[:at]),
        lambda: mark.join(lines[at:]),
        lambda: mark.join([*lines[:at], *others[int(rng.integers(len(others) + 1)) :]]),
        lambda: mark.join([*lines[:at], *lines[at + 1 :]]),
        lambda: text + mark + text,
        lambda: text[: int(rng.integers(len(text) + 1))],
    ]
    return ways[int(rng.integers(len(ways)))]()[:LENGTH]
