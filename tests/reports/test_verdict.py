"""What the verdict says, word by word, and what it must never say."""

import io
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from plumbline.errors import IncomparableError
from plumbline.evaluation.comparison import (
    Comparison,
    QuantityChange,
    adjust_changes,
    compare_stages,
    pair_evaluations,
)
from plumbline.evaluation.statistics import Interval, PairedDifference
from plumbline.records import Evaluation, Judged
from plumbline.reports.verdict import run_verdict, stage_verdict
from plumbline.reports.view import Bounds, RunView
from plumbline.reports.write import run_summary, write_report
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from tests.reports.building import BASE, RL, SFT, Level, evaluation, recipe, write_evaluations

BOUNDS = Bounds(("constant", Interval(0.31, 0.3, 0.32, 200)), Interval(1, 1, 1, 200))
Rewards = list[float]
NO_BOUNDS = "no baseline and no oracle"


def made(
    rewards: Rewards,
    mode: str = "greedy",
    parts: Callable[[int], dict[str, float | None]] = lambda _: {},
) -> Evaluation:
    rows = tuple(
        Judged(
            id=f"e{i:04d}",
            stratum="",
            completion="",
            reward=r,
            parts=parts(i),
            readings={},
            how="strict",
        )
        for i, r in enumerate(rewards)
    )
    how = {"source": "x", "task": "t", "split": "test", "rubric": "r/1", "sampling": {}, "seed": 0}
    return Evaluation(**how, rows=rows, form=("parse", "parses", "schema", "alone"))


def compared(
    before: Rewards, after: Rewards, mode: str = "greedy", stages=("sft", "rl"), **parts
) -> Comparison:
    found = compare_stages(
        "test",
        mode,
        (stages[0], made(before, parts=parts.get("before_parts", lambda _: {}))),
        (stages[1], made(after, parts=parts.get("after_parts", lambda _: {}))),
    )
    assert isinstance(found, Comparison)
    return found


def noisy(mean: float, n: int, seed: int, size: float = 0.1) -> Rewards:
    return list(np.clip(np.random.default_rng(seed).normal(mean, size, n), 0, 1))


# -- rise, fall, no change -------------------------------------------------------------------------


UP = compared([0.5, 0.7] * 100, [0.9, 1.0] * 100)
ROSE = (
    r"^GRPO raised the greedy reward on 200 held-out test examples from 0\.600 to 0\.950: \+0\.350 "
    r"\[\+0\.34\d, \+0\.35\d\], p < 0\.001; the best baseline earns 0\.310 and the oracle 1\.000\.$"
)
FELL = r"^GRPO lowered the greedy reward on 100 held-out test examples from 0\.950 to 0\.600: -0\.350 \[-0"
EQUAL = r"every example earned the same before and after \(0\.500 on average\)"
SAID = {
    "a rise": (UP, "rise", ROSE),
    "a fall": (compared([0.9, 1.0] * 50, [0.5, 0.7] * 50), "fall", FELL),
    "a split whose name says held out": (
        replace(UP, split="held-out-tasks"),
        "rise",
        "on 200 held-out-tasks examples",
    ),
    "one example": (compared([0.0], [1.0]), "same", r"on 1 held-out test example \("),
    "equal rewards": (compared([0.5] * 20, [0.5] * 20), "same", EQUAL),
    "SFT against base": (
        compared([0.1] * 20, [0.5] * 20, stages=("base", "sft")),
        "rise",
        "^SFT raised",
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_what_the_sentence_says(case):
    found, tone, pattern = SAID[case]
    said = stage_verdict(found, BOUNDS)
    assert said.tone == tone
    assert re.search(pattern, said.sentence), said.sentence


def test_no_change_says_what_could_not_have_been_seen():
    found = compared(noisy(0.6, 59, 1), noisy(0.6, 59, 2))
    said = stage_verdict(found, BOUNDS)
    assert said.tone == "same"
    assert said.sentence.startswith(
        "GRPO cannot be shown to have changed the greedy reward on 59 held-out test exampl"
    )
    (wanted,) = re.search(r" about (\d+) examples .* 0\.02 ", said.sentence).groups()
    change = found.reward.paired
    by_normal_distribution = (
        59 * (2.927 * np.std(found_changes(found), ddof=1) / 59**0.5 / 0.02) ** 2
    )
    assert int(wanted) == pytest.approx(by_normal_distribution, rel=0.05)
    enough = stage_verdict(found, BOUNDS, margin=change.within + 0.001)
    assert enough.sentence.startswith(
        "GRPO did not change the greedy reward on 59 held-out test examples (0."
    )
    assert re.search(r" larger than 0\.0", enough.sentence)


def found_changes(found: Comparison) -> list[float]:
    return [after.reward - before.reward for before, after in found.pairs]


def test_where_there_are_clusters_it_is_these_that_are_advised():
    rng = np.random.default_rng(3)
    before, by = noisy(0.6, 64, 1), np.repeat(rng.normal(0, 0.1, 8), 8)
    one, other = (
        replace(of, rows=tuple(replace(row, cluster=f"c{n // 8}") for n, row in enumerate(of.rows)))
        for of in (made(before), made(list(np.array(before) + by)))
    )
    found = compare_stages("test", "greedy", ("sft", one), ("rl", other))
    sentence = stage_verdict(found, BOUNDS).sentence
    assert re.search(r"\d+ clusters of 8 examples .* 0\.02 .*; there are 8, ", sentence)


def test_no_rise_is_claimed_whose_interval_includes_zero():
    """Whatever the numbers are: a claim needs the interval and the test."""
    rng = np.random.default_rng(0)
    claims = 0
    for _ in range(60):
        n = int(rng.integers(2, 40))
        before = rng.uniform(0, 1, n)
        after = np.clip(before + rng.normal(rng.choice([-0.1, 0.0, 0.1]), 0.2, n), 0, 1)
        found = compared(list(before), list(after))
        said, difference = stage_verdict(found, BOUNDS), found.reward.paired.difference
        claimed = "raised" in said.sentence or "lowered" in said.sentence
        sure = (difference.low > 0 or difference.high < 0) and found.reward.paired.p_value < 0.05
        assert claimed == sure
        assert ("raised" in said.sentence) == (sure and difference.mean > 0)
        claims += claimed
    assert 5 < claims < 55


def test_five_examples_prove_nothing_even_if_all_rise():
    found = compared([0.1, 0.2, 0.3, 0.2, 0.1], [0.5, 0.8, 0.6, 0.9, 0.4])
    assert found.reward.paired.difference.excludes_zero
    said = stage_verdict(found, BOUNDS)
    assert said.tone == "same"
    assert "disagree" in said.reason


@pytest.mark.parametrize(
    ("low", "high", "p", "direction"),
    [
        (-0.001, 0.04, 0.04, "same"),
        (0.001, 0.04, 0.06, "same"),
        (0.001, 0.04, 0.04, "rise"),
        (-0.04, -0.001, 0.04, "fall"),
        (-0.04, 0.0, 0.01, "same"),
    ],
)
def test_a_change_needs_the_interval_and_the_test(low, high, p, direction):
    difference = Interval((low + high) / 2, low, high, 50)
    level = Interval(0.5, 0.4, 0.6, 50)
    assert (
        QuantityChange(
            "reward", level, level, PairedDifference(difference, p, 30, 10, 10, 0.4, 0.5)
        ).direction
        == direction
    )


def test_without_references_it_says_that_none_stand_beside():
    assert NO_BOUNDS in stage_verdict(compared([0.1] * 20, [0.5] * 20)).sentence


def test_a_reward_below_the_best_baseline_is_said_to_be():
    said = stage_verdict(compared([0.1] * 20, [0.3] * 20), BOUNDS)
    assert said.tone == "rise"
    assert "the baseline constant" in said.reason


# -- reasons ---------------------------------------------------------------------------------------


def parts_of(parse: float, fields: float) -> Callable[[int], dict[str, float | None]]:
    return lambda i: {"parse": float(i % 10 < parse * 10), "fields": float(i % 10 < fields * 10)}


ONE_SIDED = [
    (
        (0.5, 0.4),
        (1.0, 0.4),
        "The gain is in format (parse +0.500), not in content: no other part rose.",
    ),
    ((1.0, 0.4), (1.0, 0.9), "The gain is in content (fields +0.500), not in format."),
]


@pytest.mark.parametrize(
    ("before", "after", "said"), ONE_SIDED, ids=["format alone", "content alone"]
)
def test_a_gain_in_one_of_format_and_content_is_said_to_be(before, after, said):
    found = compared(
        [0.3] * 100, [0.5] * 100, before_parts=parts_of(*before), after_parts=parts_of(*after)
    )
    assert stage_verdict(found).reason == said


def test_a_gain_in_both_says_how_much_comes_with_the_form():
    found = compared(
        [0.0] * 50 + [0.5] * 50,
        [0.4] * 50 + [0.7] * 50,
        before_parts=lambda i: {"parse": float(i >= 50), "fields": 0.0 if i < 50 else 0.5},
        after_parts=lambda i: {"parse": 1.0, "fields": 0.4 if i < 50 else 0.7},
    )
    said = stage_verdict(found).reason
    assert said.startswith(
        "Format (parse +0.500) and content (fields +0.300) both rose; +0.200 of the difference"
    )
    assert said.endswith("comes from the 50 answers whose format changed.")
    share = found.form_share
    assert (share.changed, round(share.from_changed, 9), round(share.from_rest, 9)) == (
        50,
        0.2,
        0.1,
    )


def test_content_that_rises_only_where_the_format_changed_is_said_to():
    """Unreadable answers have no content either: reading them is not the same as knowing more."""
    stays = noisy(0.5, 50, 8)
    found = compared(
        [0.0] * 50 + stays,
        [0.5] * 50 + noisy(0.5, 50, 9),
        before_parts=lambda i: {"parses": float(i >= 50), "fields": 0.0 if i < 50 else 0.5},
        after_parts=lambda i: {"parses": 1.0, "fields": 0.5},
    )
    said = stage_verdict(found).reason
    assert said.startswith("Format (parses +0.500) and content (fields +0.250) both rose; +0.25")
    assert re.search(r"the 50 answers .* other 50 .* 0 \(.0\.0\d\d \[-0.*\]\)\.$", said)


def test_nothing_is_said_of_format_where_no_part_pays_for_it():
    found = compared(
        [0.3] * 50,
        [0.5] * 50,
        before_parts=lambda _: {"fact": 0.3},
        after_parts=lambda _: {"fact": 0.5},
    )
    assert "format" not in stage_verdict(found).reason


def test_sampled_answers_that_disagree_are_named():
    greedy = compared([0.3] * 50, [0.5] * 50)
    sampled = compared(noisy(0.4, 50, 3), noisy(0.4, 50, 4), mode="sampled")
    assert stage_verdict(greedy, other=sampled).reason.startswith(
        "Sampled answers disagree: their reward did not change ("
    )
    agreeing = compared([0.3] * 50, [0.5] * 50, mode="sampled")
    assert "disagree" not in str(stage_verdict(greedy, other=agreeing))


def test_many_parts_are_not_called_moved_by_chance():
    """Twenty parts of noise: without Holm's correction one of them would pass in most draws."""
    rng = np.random.default_rng(1)
    moved = raw = 0
    for _ in range(10):
        before, after = rng.integers(0, 2, (40, 20)), rng.integers(0, 2, (40, 20))
        found = compared(
            [0.5] * 40,
            [0.5] * 40,
            before_parts=lambda i, b=before: {f"p{j}": float(b[i, j]) for j in range(20)},
            after_parts=lambda i, a=after: {f"p{j}": float(a[i, j]) for j in range(20)},
        )
        moved += sum(change.direction != "same" for change in found.parts)
        raw += sum(change.paired.p_value < 0.05 for change in found.parts)
    assert raw > 3
    assert moved <= 1


def test_holm_multiplies_by_rank_and_never_reorders():
    base = compared([0.1] * 20, [0.5] * 20).reward
    changes = [
        replace(base, name=name, paired=replace(base.paired, p_value=p))
        for name, p in (("a", 0.01), ("b", 0.04), ("c", 0.03), ("d", 0.9))
    ]
    assert [round(one.paired.p, 9) for one in adjust_changes(changes)] == [0.04, 0.09, 0.09, 0.9]


# -- runs ------------------------------------------------------------------------------------------


def started(
    tmp_path, levels: dict[str, Level], *, finish: bool = True, n: int = 59, **over
) -> RunView:
    with Run.start(recipe(**over), tmp_path / "run") as run:
        write_evaluations(run, levels, n)
        if finish:
            run.finish({"status": "finished"})
    return RunView(RunRecord.read(tmp_path / "run"))


CONTROL = {"rl": {"steps": 60}, "controls": {"shuffle_advantages": True}}


def test_the_verdict_speaks_of_the_last_two_stages_on_test_greedily(view):
    said = run_verdict(view)
    assert said.sentence.startswith(
        "GRPO raised the greedy reward on 59 held-out test examples from "
    )
    before, after = (
        view.evaluations[EvaluationKey(s, "test", "greedy")].mean_reward for s in ("sft", "rl")
    )
    assert f"from {before:.3f} to {after:.3f}" in said.sentence


def test_it_also_says_first_to_last_where_a_stage_lies_in_between(tmp_path):
    """RL brought back what SFT took, and that is not the same as a gain."""
    view = started(tmp_path, {"base": RL, "sft": SFT, "rl": RL})
    said = run_verdict(view)
    assert said.tone == "rise"
    assert "irst to last, " in said.reason
    assert view.compare_last(*view.headline, first=0).reward.direction == "same"
    assert (
        "irst to last" not in run_verdict(started(tmp_path / "two", {"sft": SFT, "rl": RL})).reason
    )
    fallen = run_verdict(started(tmp_path / "fallen", {"base": RL, "sft": BASE, "rl": SFT}))
    assert re.search(r"first to last, .* lower", fallen.reason)


def test_first_to_last_names_its_examples_where_the_first_stage_has_fewer(tmp_path):
    with Run.start(recipe(), tmp_path / "run") as run:
        write_evaluations(run, {"base": BASE}, 32, beside=False)
        write_evaluations(run, {"sft": SFT, "rl": RL}, 59)
        run.finish({"status": "finished"})
    said = run_verdict(RunView(RunRecord.read(tmp_path / "run")))
    assert "on 59 held-out test examples" in said.sentence
    assert re.search(r"irst to last, .* higher .* Base .* 32 examples", said.reason)


def test_a_negative_control_that_holds(tmp_path):
    said = run_verdict(started(tmp_path, {"sft": SFT, "rl": SFT}, **CONTROL))
    assert said.tone == "control"
    begins = (
        "Negative control (advantages dealt at random, so the reward should not rise): GRPO cannot "
        "be shown to"
    )
    assert said.sentence.startswith(begins)
    assert said.reason


def test_a_negative_control_that_rises_is_not_good_news(tmp_path):
    said = run_verdict(started(tmp_path, {"sft": SFT, "rl": RL}, **CONTROL))
    assert said.tone == "control"
    assert said.sentence.startswith("Negative control (")
    assert "raised" in said.sentence
    assert said.reason.startswith(
        "It rose all the same, so a rise with real advantages is no proof"
    )


def test_a_negative_control_is_named_before_its_rl_is_evaluated(tmp_path):
    for name, levels in (
        ("one", {"base": BASE}),
        ("two", {"base": BASE, "sft": SFT}),
        ("none", {}),
    ):
        said = run_verdict(started(tmp_path / name, levels, finish=False, **CONTROL))
        assert said.tone == "control"
        assert "negative control" in said.sentence


def test_no_evaluation_and_one_evaluation(tmp_path):
    none = run_verdict(started(tmp_path / "none", {}, finish=False))
    assert (none.tone, none.reason) == ("none", "")
    one = run_verdict(started(tmp_path / "one", {"base": BASE}))
    assert one.sentence.startswith(
        "Only Base has been evaluated on test: it earns a greedy reward of 0."
    )
    assert "59 held-out examples" in one.sentence
    assert "best baseline earns 0.3" in one.sentence


def test_different_examples_are_not_compared(tmp_path):
    view = started(tmp_path, {"sft": SFT})
    run = Run(view.run.folder, view.run.recipe)
    run.evaluation(
        EvaluationKey("rl", "test", "greedy"), evaluation("rl", "test", "greedy", RL, 40, 1)
    )
    run.evaluation(
        EvaluationKey("rl", "test", "sampled"), evaluation("rl", "test", "sampled", RL, 40, 1)
    )
    again = RunView(run.record())
    assert isinstance(again.compare_last("test", "greedy"), IncomparableError)
    said = run_verdict(again)
    assert said.tone == "none"
    assert "40 examples of 59 and 40." in said.sentence


def test_the_oracle_alone_or_the_baselines_alone_are_enough(own):
    for name in ("constant", "blank", "shuffled-gold"):
        (own.folder / "evaluations" / f"reference.test.{name}.json").unlink()
    assert "; the oracle earns 1.000." in run_verdict(RunView(own.record())).sentence
    (own.folder / "evaluations" / "reference.test.oracle.json").unlink()
    assert NO_BOUNDS in run_verdict(RunView(own.record())).sentence


@pytest.mark.parametrize(
    ("n", "called"), [(1, True), (12, True), (29, True), (30, False), (59, False)]
)
def test_few_examples_are_called_a_trial_in_the_terminal_the_report_and_a_comparison(
    tmp_path, n, called
):
    view = started(tmp_path, {"sft": SFT, "rl": RL}, n=n)
    said = f"A trial: {n} example{'' if n == 1 else 's'} decide{'s' if n == 1 else ''} nothing"
    assert run_verdict(view).reason.startswith(said) == called
    shown = io.StringIO()
    Console(width=500, file=shown).print(run_summary(view.run))
    assert (said in shown.getvalue()) == called
    assert (
        said in write_report(view.run).read_text(encoding="utf-8").replace("\u00a0", " ")
    ) == called
    before, after = (
        view.evaluations[EvaluationKey(stage, "test", "greedy")] for stage in ("sft", "rl")
    )
    assert (
        pair_evaluations("b", "a", "test", before, after).remark == said[0].lower() + said[1:]
    ) == called
