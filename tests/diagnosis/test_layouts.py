"""One run with one fault, as TRL writes it and as users rename its columns: the same is found."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from plumbline.checks.check import examine
from plumbline.checks.diagnosis.readers import read_histories
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.storage import write_jsonl

STEPS, PROMPTS, GROUP = 30, 4, 4
WRITINGS = ("{}", "{}.", "{:,}", "{}.0")
Row = dict[str, Any]


def draw(*, asked=None, rejected=(), length=0, seed=0) -> list[Row]:
    """Answers that are right more and more often, in four writings, and end in a stop ever less;
    what is rejected earns nothing in `exact`."""
    dice = np.random.default_rng(seed)
    numbers = asked or dice.permutation(STEPS * PROMPTS).tolist()
    rows: list[Row] = []
    for place in range(STEPS * PROMPTS * GROUP):
        number, step = numbers[place // GROUP], place // (PROMPTS * GROUP)
        right = dice.random() < 0.3 + 0.4 * step / STEPS
        writing = dice.choice(4, p=[0.1 + 0.2 * step / STEPS, 0.5 - 0.2 * step / STEPS, 0.2, 0.2])
        value = 1000 + 7 * number + (0 if right else int(dice.integers(1, 9)))
        kept = WRITINGS[writing] not in rejected
        kind = "Add up" if number % 2 else "Count"
        rows.append(
            {
                "step": step + 1,
                "prompt": f"{kind} the row of {number}" + " or so" * (length * number // 10),
                "text": WRITINGS[writing].format(value),
                "gold": str(1000 + 7 * number),
                "rewards": {"exact": float(right and kept), "stops": float(writing == 1)},
            }
        )
    return rows


def change(rows, part, paid):
    """The rows with other values of a part."""
    return [
        {**row, "rewards": {**row["rewards"], part: paid(place, row)}}
        for place, row in enumerate(rows)
    ]


def without_gold(rows):
    return [{key: value for key, value in row.items() if key != "gold"} for row in rows]


def two_parsers():
    """A second part rejects another writing than the first."""
    plain = draw(rejected=WRITINGS[1:2])
    return change(
        draw(rejected=WRITINGS[2:3]), "plain", lambda place, _: plain[place]["rewards"]["exact"]
    )


def two_kinds():
    """Each of two parts pays right answers to its own prompts."""
    counted = change(draw(), "sums", lambda _, row: row["rewards"]["exact"] * is_sum(row))
    return change(counted, "exact", lambda _, row: row["rewards"]["exact"] * (not is_sum(row)))


def is_sum(row):
    return row["prompt"].startswith("Add")


def next_row(place, _):
    """What the next answer of the step earns."""
    wide = PROMPTS * GROUP
    after = place // wide * wide + (place + 1) % wide
    return draw()[after]["rewards"]["stops"]


Found = set[tuple[str, str, str, str]]
RUNS: Mapping[str, tuple[Sequence[Row], Mapping[str, float], Found]] = {
    "nothing": (draw(), {}, set()),
    "nothing, without gold": (without_gold(draw()), {}, set()),
    "dead part": (
        change(draw(), "stops", lambda *_: 0.0),
        {},
        {("dead-part", "zero", "warning", "stops")},
    ),
    "lost reward": (
        change(draw(), "stops", lambda place, row: row["rewards"]["stops"] if place % 9 else None),
        {},
        {("lost-reward", "no-number", "warning", "stops")},
    ),
    "strict parser": (
        draw(rejected=WRITINGS[2:]),
        {},
        {("gold-unpaid", "unpaid", "fatal", "")},
    ),
    "strict parser, without gold": (
        without_gold(draw(rejected=WRITINGS[2:])),
        {},
        {("writing-unpaid", "writing-unpaid", "warning", "exact")},
    ),
    "two strict parsers": (
        without_gold(two_parsers()),
        {},
        {
            ("writing-unpaid", "writing-unpaid", "warning", "exact"),
            ("writing-unpaid", "writing-unpaid", "warning", "plain"),
        },
    ),
    "two strict parsers, with gold": (
        two_parsers(),
        {},
        {("gold-unpaid", "unpaid", "warning", "exact")},
    ),
    "a part for each kind of prompt": (two_kinds(), {}, set()),
    "lost reward of a part called reward": (
        change(draw(), "reward", lambda place, _: place % 7 / 7 if place % 9 else None),
        {"reward": 1.0},
        {("lost-reward", "no-number", "warning", "reward")},
    ),
    "rewards of the next row": (
        change(draw(), "stops", next_row),
        {},
        {("reward-rows", "shifted", "fatal", "stops")},
    ),
    "part charged": (
        draw(),
        {"stops": -0.5},
        {("parts-oppose", "charged", "warning", "stops")},
    ),
    "part dropped": (
        draw(),
        {"stops": 0.0},
        {("parts-oppose", "dropped", "warning", "stops")},
    ),
    "sorted rows": (
        draw(asked=[*range(0, 120, 2), *range(1, 120, 2)]),
        {},
        {("data-order", "sorted-by-kind", "warning", "")},
    ),
    "sorted by length": (
        draw(asked=[*range(120)], length=1),
        {},
        {("data-order", "sorted-by-length", "warning", "")},
    ),
    "one prompt repeated": (
        draw(asked=[at if at % 2 else 8 for at in range(120)]),
        {},
        {("repeated-prompts", "drawn-again", "warning", "")},
    ),
    "few prompts": (
        draw(asked=[at % 5 for at in range(120)]),
        {},
        {("repeated-prompts", "few-prompts", "warning", "")},
    ),
}


def mean(values):
    known = [one for one in values if one is not None]
    return sum(known) / len(known)


def tell(rows, weights):
    """The rewards of completions, and what is logged of each step."""
    paid = [
        sum(weights.get(name, 1.0) * (value or 0.0) for name, value in row["rewards"].items())
        for row in rows
    ]
    wide = PROMPTS * GROUP
    for step in range(STEPS):
        some, earned = rows[step * wide : (step + 1) * wide], paid[step * wide : (step + 1) * wide]
        groups = np.reshape(earned, (PROMPTS, GROUP))
        parts = {name: [row["rewards"][name] for row in some] for name in rows[0]["rewards"]}
        yield step + 1, some, groups, parts


def write_trl(rows, weights, folder, log):
    """A table a step, with a column for each reward function, and the state of the trainer."""
    (folder / "completions").mkdir(parents=True)
    history = []
    for step, some, groups, parts in tell(rows, weights):
        spread = groups.std(axis=1, ddof=1)
        advantages = (groups - groups.mean(axis=1, keepdims=True)) / (spread[:, None] + 1e-4)
        with (folder / "completions" / f"completions_{step:05d}.jsonl").open("w") as file:
            for row, advantage in zip(some, advantages.ravel(), strict=True):
                told = {
                    "step": step,
                    "prompt": [{"role": "user", "content": row["prompt"]}],
                    "completion": [{"role": "assistant", "content": row["text"]}],
                    **row["rewards"],
                    **({"solution": row["gold"]} if "gold" in row else {}),
                    "advantage": advantage,
                }
                file.write(json.dumps(told) + "\n")
        history.append(
            {
                "step": step,
                "reward": float(groups.mean()),
                "reward_std": float(spread.mean()),
                "frac_reward_zero_std": float((spread < 1e-6).mean()),
                "grad_norm": 1.0,
                "loss": 0.01,
                **{f"rewards/{name}/mean": mean(values) for name, values in parts.items()},
                **{
                    f"rewards/{name}/std": float(np.std([one or 0.0 for one in values]))
                    for name, values in parts.items()
                },
            }
        )
    if log:
        state = {"log_history": history, "global_step": STEPS, "max_steps": STEPS}
        (folder / "trainer_state.json").write_text(json.dumps(state))


def write_renamed(rows, weights, folder, log):
    """One file of answers, whose rewards are a table in each row, and one of metrics."""
    folder.mkdir(parents=True)
    metrics = [
        {
            "step": step,
            "reward": float(groups.mean()),
            "rewards": {name: mean(values) for name, values in parts.items()},
            "loss": 0.01,
            "grad_norm": 1.0,
        }
        for step, _, groups, parts in tell(rows, weights)
    ]
    told = [{"id": f"a{place}", **row} for place, row in enumerate(rows)]
    for name, lines in (("completions", told), ("metrics", metrics if log else [])):
        if lines:
            write_jsonl(folder / f"{name}.jsonl", lines)


def find(folder):
    (history,) = read_histories(folder)
    return {
        (one.check, one.code, one.level, one.about)
        for one in examine(history, CHECKS).findings
        if one.level != "note"
    }


@pytest.mark.parametrize(
    ("name", "log"),
    [(name, log) for name, run in RUNS.items() for log in (True, False) if log or not run[1]],
)
def test_the_same_is_found_in_both_layouts_with_and_without_a_log(tmp_path, name, log):
    rows, weights, wanted = RUNS[name]
    for write in (write_trl, write_renamed):
        write(rows, weights, tmp_path / write.__name__, log=log)
        assert find(tmp_path / write.__name__) == wanted, write.__name__
