"""What training is foretold to gain: the formula by hand, its order, and what runs and tables say."""

import math

import pytest

from plumbline.checks import gain
from plumbline.checks.gain import (
    Coefficients,
    GainTable,
    Offer,
    error_scale,
    foretell,
    foretold_lines,
    offer_of_run,
    read_table,
)
from plumbline.errors import RunError
from plumbline.runs.record import RunRecord
from plumbline.storage import write_jsonl
from tests.runs.stored import stored

OFFER = Offer(0.2, 0.3, draw_seconds=0.2, update_seconds=0.3)
TABLE = GainTable(
    runs=9,
    low=-0.2,
    high=0.1,
    ways={
        "sft": Coefficients(-1.0, 0.5, 0.0, True, 5e-4),
        "grpo": Coefficients(0.5, 0.8, 1.2, False, 2e-4),
    },
)


@pytest.fixture
def _by_hand(monkeypatch):
    monkeypatch.setattr(gain, "read_table", lambda: TABLE)


@pytest.mark.usefixtures("_by_hand")
def test_the_formula_by_hand():
    (found,) = foretell(OFFER, 600)
    z = 0.5 + 0.8 * math.log(600 / 0.5 / 1000) + 1.2 * math.log(0.3 / 0.8)
    expected = 0.8 / (1 + math.exp(-z))  # the same as odds
    assert (found.way, found.answers, found.learning_rate) == ("grpo", 1200, 2e-4)
    assert found.gain == pytest.approx(expected)
    scale = math.sqrt(expected * (0.8 - expected)) + 0.02
    assert scale == error_scale(expected, 0.8)
    assert (found.low, found.high) == pytest.approx(
        (expected - 0.2 * scale, expected + 0.1 * scale)
    )


@pytest.mark.usefixtures("_by_hand")
def test_gold_answers_are_learnt_from_where_there_are_any_and_are_not_drawn():
    found = {one.way: one for one in foretell(Offer(0.2, 0.3, 0.2, 0.3, gold=True), 600)}
    assert set(found) == {"sft", "grpo"}
    assert found["sft"].answers == 2000
    equal = foretell(Offer(0.2, 0.0, 0.2, 0.3, gold=True), 600)
    assert equal[0].way == "sft", "where no rewards differ, only gold answers teach"
    assert equal[0].gain == found["sft"].gain
    assert equal[1].gain == 0


@pytest.mark.parametrize("gold", [True, False])
def test_more_time_and_more_spread_never_gain_less(gold):
    def largest(seconds, spread):
        found = foretell(Offer(0.2, spread, 0.2, 0.3, gold), seconds)
        return {one.way: one.gain for one in found}

    few, many = largest(60, 0.1), largest(6000, 0.1)
    wide = largest(60, 0.3)
    assert all(few[way] <= many[way] and few[way] <= wide[way] for way in few)


def test_the_table_of_the_package_is_fitted():
    table = read_table()
    assert table.low < 0 < table.high
    assert all(way.answers >= 0 and way.spread >= 0 for way in table.ways.values())
    assert [name for name, way in table.ways.items() if way.gold] == ["sft"]


def test_each_way_has_a_line():
    found = foretell(Offer(0.2, 0.1, 0.2, 0.3, gold=True), 60)
    assert len([*foretold_lines(found, 60)]) == 1 + len(found) == 6


def test_the_last_steps_of_a_run_are_what_more_of_it_begins_with(tmp_path):
    run = stored(tmp_path / "run", steps=0).record()
    with pytest.raises(RunError):
        offer_of_run(run)
    rows = [
        {"stage": "rl", "step": step, "train/reward": 0.04 * step, "train/reward_std": 0.01 * step}
        for step in range(1, 21)
    ]
    spent = [
        {"stage": "rl", "step": step, "cpu/rollouts": 3.0, "cpu/update": 1.0} for step in range(20)
    ]
    write_jsonl(tmp_path / "run" / "metrics.jsonl", rows)
    write_jsonl(tmp_path / "run" / "timings.jsonl", spent)
    run = RunRecord.read(tmp_path / "run")
    offer, seconds = offer_of_run(run)
    answers = run.recipe.rl.prompts_per_step * run.recipe.rl.group_size
    assert (offer.reward, offer.spread) == pytest.approx((0.62, 0.155)), "of the last ten"
    assert (offer.draw_seconds, offer.update_seconds) == (3 / answers, 1 / answers)
    assert (seconds, offer.gold) == (80, False)


@pytest.mark.parametrize("wrong", [-1.0, 1e300, None, True])
@pytest.mark.parametrize("name", ["train/reward", "train/reward_std", "cpu/rollouts", "cpu/update"])
def test_a_strangers_records_are_an_answer_or_an_error(tmp_path, name, wrong):
    stored(tmp_path / "run", steps=0)
    row = {"stage": "rl", "step": 1, "train/reward": 0.5, "train/reward_std": 0.2}
    spent = {"stage": "rl", "step": 1, "cpu/rollouts": 3.0, "cpu/update": 1.0}
    (row if name in row else spent)[name] = wrong
    write_jsonl(tmp_path / "run" / "metrics.jsonl", [row])
    write_jsonl(tmp_path / "run" / "timings.jsonl", [spent])
    try:
        found = foretell(*offer_of_run(RunRecord.read(tmp_path / "run")))
    except RunError:
        assert wrong is None
        return
    assert all(math.isfinite(value) for one in found for value in (one.gain, one.low, one.high))
