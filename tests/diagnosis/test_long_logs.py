"""Logs of a million steps: what a check or a reader costs grows with the log and no faster.

What counts is how often functions are called, at a length and at ten times of it; where the work is
in one call of C, the processor time of both.
"""

import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest

from plumbline.checks.diagnosis.facts import has_logged_means
from plumbline.checks.diagnosis.history import Sample, Series
from plumbline.checks.diagnosis.readers import console, read_histories, table, wandb
from plumbline.checks.diagnosis.readers.rows import MOST_RUNS
from plumbline.checks.diagnosis.rules import signal
from plumbline.checks.diagnosis.rules.evaluations import find_plateau
from plumbline.checks.diagnosis.rules.series import find_jump
from plumbline.checks.diagnosis.rules.steps import find_gradient_spikes
from plumbline.checks.diagnosis.watch import replay_rules
from plumbline.errors import DataError
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from tests.diagnosis.planted import planted
from tests.diagnosis.test_checks import healthy
from tests.work import calls, work

LINEAR = 25
"""Times the cost of a tenth of the log, at most: 10 where it is linear, 100 where it is
quadratic."""


def waves(steps):
    """A run whose series jump every 20 steps."""
    return healthy(
        steps=steps,
        **{name: 1 + 0.5 * (np.arange(steps) // 20 % 2) for name in ("reward", "entropy")},
    )


@pytest.mark.parametrize(
    ("look", "make"), [(find_plateau, healthy), (find_gradient_spikes, healthy)]
)
def test_what_is_found_by_arrays_calls_no_function_a_step(look, make):
    short, long = (calls(lambda: list(look(make(steps=steps)))) for steps in (400, 4000))  # noqa: B023
    assert long < 1.5 * short


def test_series_that_jump_again_and_again():
    short, long = (calls(lambda: list(find_jump(waves(steps)))) for steps in (400, 4000))  # noqa: B023
    assert long < LINEAR * short


def test_the_largest_magnitude_of_a_series_is_looked_for_once(monkeypatch):
    asked = []
    monkeypatch.setattr(
        signal, "max_magnitude", lambda values: asked.append(1) or float(np.abs(values).max())
    )
    values = np.where(np.arange(600) % 6, 0.5, 0.0)
    values[-1] = 0.5
    (found,) = signal.find_outage(healthy(steps=600, reward=values))
    assert found.evidence["steps"] > 90
    assert len(asked) == 1


class Unscanned(np.ndarray):
    """Steps that nobody may look through one by one."""

    def __eq__(self, other):
        raise AssertionError("all steps were looked at for one")


def test_a_logged_step_is_found_by_search():
    steps = np.array([1, 5, 9]).view(Unscanned)
    series = {"reward": Series(steps, np.array([0.1, 0.5, np.nan]))}
    stored = [Sample(5, "p", "text", 0.5)]
    assert has_logged_means(stored, 5, series) is True
    assert has_logged_means([replace(stored[0], reward=0.25)], 5, series) is False
    assert has_logged_means(stored, 6, series) is None


# -- readers ---------------------------------------------------------------------------------------


def printed_rows(count):
    rows = [({"loss": "0.5"}, None)] * count
    return lambda: console._number_steps(rows)


def printed_row_without_an_end(count):
    lines = ["{'loss': 0.5,", *[" 1.5"] * count]
    return lambda: list(console._parse_dicts(lines))


def table_with_gaps(count):
    rows = [
        {"loss": 0.5, "reward": np.nan} if at % 2 else {"loss": np.nan, "reward": 0.5}
        for at in range(count)
    ]
    return lambda: table._drop_gaps(rows)


def record_in_pieces(count):
    piece = struct.pack("<IHB", zlib.crc32(bytes([3])), 0, 3)
    content = bytearray(wandb._START)
    for _ in range(10 * count):
        if (left := 32768 - len(content) % 32768) < 7:
            content += bytes(left)
        content += piece
    return lambda: wandb._read_records(bytes(content))


@pytest.mark.parametrize(
    "make", [printed_rows, printed_row_without_an_end, table_with_gaps, record_in_pieces]
)
def test_a_reader_is_linear(make):
    short, long = (work(make(count)) for count in (600, 6000))
    assert long < LINEAR * short


def test_a_cell_of_blanks(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n" + " " * 20_000 + "{\n1,0.5\n")
    assert work(lambda: table._parse_separated(path), tries=1) < 10


def test_a_table_of_many_runs_side_by_side():
    def runs_of(count):
        row = {"Step": "1", **{f"run {at} - train/loss": "0.5" for at in range(count)}}
        return calls(lambda: table._split_runs([row]))

    assert runs_of(300) < LINEAR * runs_of(30)


@pytest.mark.parametrize("name", ["many.csv", "many.log"])
def test_a_record_of_more_runs_than_anybody_compares_is_refused(tmp_path, name):
    path = tmp_path / name
    if name == "many.csv":
        path.write_text(
            "run,step,loss\n"
            + "".join(f"r{at // 5},{at % 5},0.5\n" for at in range(5 * MOST_RUNS + 5))
        )
    else:
        path.write_text(
            "".join(f"step {at % 5 + 1} | loss: 0.5\n" for at in range(5 * MOST_RUNS + 5))
        )
    with pytest.raises(DataError, match=r"501 runs"):
        read_histories(path)


# -- watch rules -----------------------------------------------------------------------------------

RULES = "train/grad_norm", "train/frac_truncated", "train/frac_reward_zero_std"


def test_watch_rules_over_many_steps_and_evaluations(tmp_path):
    def looked_at(count):
        folder = tmp_path / str(count)
        levels = {
            task: dict.fromkeys(range(count), 0.5)
            for task in ("extraction", "sql_qa", "insights", "push")
        }
        planted(folder, levels, n=2, metrics={name: [0.1] * count for name in RULES})
        run = Run(folder, RunRecord.read(folder).recipe)
        run.files["metrics"].path.unlink()
        for step in range(count):
            run.metrics(
                "rl",
                step,
                {**dict.fromkeys(RULES, 0.1), "eval/mean_reward": 0.5, "eval/extraction": 0.5},
            )
        return calls(lambda: replay_rules(run.record()))

    assert looked_at(120) < LINEAR * looked_at(12)
