"""Three ways to valid JSON of a masked-diffusion model on the same examples: the tables of docs/masked-json.md.

    python experiments/masked_json.py [RUN] [--examples 200] [--retries 2] [--warm 1.0] [--also RUN] [--out FILE.json]

RUN is trained by experiments/masked_json.yaml where it is not there yet (a quarter of an hour on two cores). Its models
before and after RL are asked in three ways: as they write, read leniently with further tries, and on a scaffold. In a
second kind of lenient reading, an object that was never closed counts where it has all that the schema requires, and
where no try is valid the first one is given instead of the last.

--also adds the last model of a further run, such as that of experiments/masked_json_scaffold.yaml.
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jsonschema import Draft202012Validator

from plumbline.api import run as run_recipe
from plumbline.evaluation.evaluate import evaluate_completions, references
from plumbline.evaluation.statistics import Interval, mean_interval, paired, rate_interval
from plumbline.policies import open_policy
from plumbline.policies.masked.options import MaskedModel, MaskedSampling
from plumbline.records import Evaluation, Example, Key, Request
from plumbline.runs.run import Run
from plumbline.tasks import open_task
from plumbline.tasks.commerce.extraction.schema import JSON_SCHEMA
from plumbline.tasks.text.lenient_json import Schema, read_json, strict_json

SPLIT = "test"
STAGES = ("sft", "rl")
WAYS = ("as written", "lenient", "lenient, open ends too", "scaffold")
COMMA = re.compile(r": \d+,\d")
AT_ONCE = 50
ALONE = 40
"""Examples that are also asked one at a time, as a client that waits does."""


@dataclass
class Way:
    """What one model answered in one way."""

    stage: str
    name: str
    texts: list[str] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    tries: list[int] = field(default_factory=list)
    seconds: float = 0.0
    alone: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Bench:
    """A model's policy with its law, and what an answer has to follow."""

    policy: Any
    law: MaskedSampling
    schema: dict[str, Any]
    retries: int
    warm: float

    def valid(self, text: str) -> bool:
        """Whether a text is JSON as it stands and fits the schema."""
        value = strict_json(text)
        return value is not None and Draft202012Validator(self.schema).is_valid(value)

    def ask(self, examples: Sequence[Example], law: MaskedSampling, key: Key) -> dict[str, tuple[str, int]]:
        """Text and denoising passes of each example's answer."""
        requests = [Request((*key, example.id), example.messages, law) for example in examples]
        return {str(request.key[-1]): (got.text, len(got.steps)) for request, got in self.policy.sample(requests)}

    def answer(self, way: str, examples: Sequence[Example]) -> list[tuple[str, int, int]]:
        """Text, denoising passes and tries of each answer."""
        if way == "scaffold":
            law = replace(self.law, scaffold=json.dumps(self.schema))
            found = self.ask(examples, law, ("first",))
        else:
            found = self.ask(examples, self.law, ("first",))
        if not way.startswith("lenient"):
            return [(*found[example.id], 1) for example in examples]
        expected, open_too = Schema.from_json(self.schema), way != "lenient"
        answers = dict[str, tuple[str, int, int]]()
        left, total, last = list(examples), dict.fromkeys((example.id for example in examples), 0), found
        for attempt in range(self.retries + 1):
            if attempt:  # a further try is drawn: greedily the model would say the same again
                last = self.ask(left, replace(self.law, temperature=self.warm), ("again", attempt))
            rest = []
            for example in left:
                text, passes = last[example.id]
                total[example.id] += passes
                reading = read_json(text, expected)
                if (open_too or reading.complete) and reading.value is not None and reading.how != "strict":
                    written = json.dumps(reading.value, ensure_ascii=False)
                    text = written if self.valid(written) else text
                if not self.valid(text):
                    rest.append(example)
                    text = answers[example.id][0] if open_too and attempt else text
                answers[example.id] = (text, total[example.id], attempt + 1)
            left = rest
            if not left:
                break
        return [answers[example.id] for example in examples]


def ask_all(benches: dict[str, Bench], examples: Sequence[Example]) -> list[Way]:
    """Every model in every way, chunk by chunk in turn, so that a busy machine slows all of them alike."""
    ways = [Way(stage, name) for stage in benches for name in WAYS]
    for way in ways:
        benches[way.stage].answer(way.name, examples[:2])  # what is built or compiled once
    for start in range(0, len(examples), AT_ONCE):
        part = examples[start : start + AT_ONCE]
        for way in ways:
            began = time.perf_counter()
            for text, passes, tries in benches[way.stage].answer(way.name, part):
                way.texts.append(text)
                way.passes.append(passes)
                way.tries.append(tries)
            way.seconds += time.perf_counter() - began
    for example in examples[:ALONE]:
        for way in ways:
            began = time.perf_counter()
            benches[way.stage].answer(way.name, [example])
            way.alone.append(time.perf_counter() - began)
    return ways


def figures(
    ways: Sequence[Way], valid: Callable[[str], bool], judge: Callable[[Way], Evaluation]
) -> list[dict[str, Any]]:
    """The figures of each way; times and rewards beside those of the first."""
    rewards = [judge(way).rewards() for way in ways]
    rows = []
    for way, earned in zip(ways, rewards, strict=True):
        flags = [valid(text) for text in way.texts]
        rows.append(
            {
                "model": way.stage,
                "way": way.name,
                "n": len(way.texts),
                "valid": asdict(rate_interval(flags)),
                "reward": asdict(mean_interval(earned)),
                "against_each": [asdict(paired(other, earned).difference) for other in rewards],
                "decimal_comma": asdict(rate_interval([COMMA.search(text) is not None for text in way.texts])),
                "passes": float(np.mean(way.passes)),
                "tries": float(np.mean(way.tries)),
                "seconds_an_answer": way.seconds / len(way.texts),
                "time_against_first": way.seconds / ways[0].seconds,
                "seconds_alone": float(np.median(way.alone)),
                "time_alone_against_first": float(np.median(np.array(way.alone) / np.array(ways[0].alone))),
                "examples": way.texts[:3],
            }
        )
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The figures as Markdown."""
    lines = [
        "| model | way | valid | decimal comma | reward | passes | tries | time | time, one at a time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        valid, comma, reward = (Interval(**row[key]) for key in ("valid", "decimal_comma", "reward"))
        lines.append(
            f"| {row['model']} | {row['way']} | {valid} | {comma} | {reward} | {row['passes']:.1f} "
            f"| {row['tries']:.2f} | {row['time_against_first']:.2f} | {row['time_alone_against_first']:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("run", nargs="?", default="runs/masked-json")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--retries", type=int, default=2)
    parser.add_argument("--warm", type=float, default=1.0, help="the temperature of further tries")
    parser.add_argument("--also")
    parser.add_argument("--out", default="masked_json.json")
    given = parser.parse_args()
    folder = Path(given.run)
    if not folder.exists():
        run_recipe(Path(__file__).with_suffix(".yaml"), out=folder)
    recipe = Run.read(folder).recipe
    (section,) = recipe.each_task.values()
    task = open_task(section.name, section.options, folder / "data")
    keys = section.options["keys"]
    schema = {**JSON_SCHEMA, "properties": {key: JSON_SCHEMA["properties"][key] for key in keys}, "required": keys}
    examples = list(task.examples(SPLIT))[: given.examples]
    law = MaskedSampling.of(recipe.sampling).as_greedy()
    benches = {}
    places = {stage: str(folder / "models" / stage) for stage in STAGES}
    if given.also is not None:
        places[Path(given.also).name] = str(Path(given.also) / "models" / "rl")
    for stage, place in places.items():
        policy = open_policy(MaskedModel(**{**recipe.model.model_dump(), "name": place, "tiny": None}), place)
        benches[stage] = Bench(policy, law, schema, given.retries, given.warm)

    def judge(way: Way) -> Evaluation:
        return evaluate_completions(task, examples, way.texts, source=f"{way.stage} {way.name}", split=SPLIT)

    rows = figures(ask_all(benches, examples), benches["sft"].valid, judge)
    beside = {name: asdict(mean_interval(e.rewards())) for name, e in references(task, examples, SPLIT).items()}
    said = {
        "recipe": recipe.name,
        "n": len(examples),
        "retries": given.retries,
        "warm": given.warm,
        "rows": rows,
        "references": beside,
    }
    Path(given.out).write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")
    print(f"n = {len(examples)}, at most {given.retries} further tries\n\n{table(rows)}\n")
    for name, one in beside.items():
        print(f"{name}: {Interval(**one)}")
    print("\npaired differences of reward")
    for row in rows:
        for other, difference in zip(rows, row["against_each"], strict=True):
            if other is not row and (other["model"], other["way"]) in {("sft", "as written"), ("sft", "scaffold")}:
                before = f"{other['model']} {other['way']}"
                print(f"{row['model']} {row['way']} less {before}: {Interval(**difference):+.3f}")


if __name__ == "__main__":
    main()
