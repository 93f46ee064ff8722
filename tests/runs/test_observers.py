"""Who is told while a run goes on: the terminal, and trackers by name."""

import contextlib
import io
import json
import re
import sys
import time

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from plumbline.cli.output import print_json, print_tables, print_text
from plumbline.errors import RunError
from plumbline.recipe import parse_recipe
from plumbline.runs.observers import TRACKERS, GuardedTracker, LiveView, open_trackers, sparkline
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run

FATAL = "no-signal: the gradient is zero"


def recipe(*trackers: str):
    return parse_recipe(
        {
            "name": "watched",
            "model": {"name": "m"},
            "run": {"trackers": list(trackers), "project": "test"},
        }
    )


def rows():
    for step in (1, 2, 3):
        yield {
            "stage": "rl",
            "step": step,
            "train/reward": step / 10,
            "train/kl": None,
            "eval/mean_reward": 0.5,
        }


def write(folder, observers):
    with Run.start(recipe(), folder, observers=observers) as run:
        run.stage("rl", 3)
        for row in rows():
            run.metrics(
                "rl", row["step"], {k: v for k, v in row.items() if k not in {"stage", "step"}}
            )
        run.event("note", "no alert")
        run.event("warning", "look here")
        run.event("fatal", FATAL)


def clocked(monkeypatch):
    """The time, which a test sets; what is written; and who writes it, into a file."""
    now, text = [100.0], io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now, text, LiveView(Console(file=text, width=200))


class TestLiveView:
    def test_a_log_file_gets_lines_and_the_last_step(self, tmp_path):
        text = io.StringIO()
        write(tmp_path / "run", [LiveView(Console(file=text, width=200))])
        assert "rl: 3 steps" in text.getvalue()
        assert "rl 3/3  reward 0.300" in text.getvalue()
        assert "warning: look here" in text.getvalue()

    def test_a_log_file_says_when_something_begins_how_long_it_takes_and_when_it_ended(
        self, monkeypatch
    ):
        now, text, view = clocked(monkeypatch)

        def said(call, *values, after=0.0):
            now[0] += after
            start = len(text.getvalue())
            call(*values)
            return text.getvalue()[start:].strip()

        assert said(view.working, "evaluating sft", 0, 160) == "evaluating sft (160)", (
            "at once, before any is done"
        )
        assert said(view.working, "evaluating sft", 16, 160, after=1) == "", (
            "no line for every part"
        )
        assert (
            said(view.working, "evaluating sft", 64, 160, after=31)
            == "evaluating sft 64/160  48 s left"
        )
        assert (
            said(view.working, "evaluating sft", 160, 160, after=48)
            == "evaluating sft: done in 80 s"
        )
        assert said(view.working, "opening m", 0, 1) == "opening m"
        assert said(view.working, "opening m", 1, 1, after=1) == "", (
            "no line for the end of a moment"
        )
        assert said(view.stage, "rl", 110, 10) == "rl: 110 steps, 10 already done"
        assert (
            said(view.metrics, {"step": 11, "train/reward": 0.5}, after=60)
            == "rl 11/110  reward 0.500  1 h 39 min left"
        )
        assert (
            said(view.metrics, {"step": 110, "train/reward": 0.5}, after=6000)
            == "rl 110/110  reward 0.500"
        )

    def test_a_budget_of_seconds_says_how_many_steps_fit(self, monkeypatch):
        now, text, view = clocked(monkeypatch)
        view.stage("sft", 15000, 0)
        now[0] += 60
        view.metrics({"step": 4, "train/expected_steps": 40})
        now[0] += 540
        view.metrics({"step": 42, "train/expected_steps": 42})
        lines = text.getvalue().splitlines()
        assert lines[1:] == ["sft 4/40    9 min left", "sft 42/42"], (
            "and not fifteen thousand steps"
        )

    def test_a_terminal_gets_a_bar_numbers_and_a_curve(self, tmp_path):
        text = io.StringIO()
        view = LiveView(Console(file=text, force_terminal=True, width=100))
        write(tmp_path / "run", [view])
        assert "3/3" in text.getvalue()
        assert "0.300" in text.getvalue()
        assert "▁" in text.getvalue()
        view.close()

    def test_a_view_that_begins_where_output_is_caught_leaves_no_trace(self):
        view, before = LiveView(Console(file=io.StringIO(), force_terminal=True)), sys.stdout
        with contextlib.redirect_stdout(io.StringIO()):
            view.working("first", 0, 2)
            view.working("second", 0, 2)
            assert [task.description for task in view.progress.tasks] == ["second"]
        view.close()
        assert sys.stdout is before
        assert not view.progress.tasks

    def test_a_bar_says_what_is_left_of_steps_that_take_minutes(self):
        now, text = [100.0], io.StringIO()
        console = Console(file=text, force_terminal=True, width=100, get_time=lambda: now[0])
        view = LiveView(console)
        view.stage("sft", 10, 0)
        for step in (1, 2, 3):
            now[0] += 60
            view.metrics({"step": step})
        console.print(view.progress)
        assert re.findall(r"\d:\d\d:\d\d", text.getvalue())[-2:] == ["0:03:00", "0:07:00"]
        view.close()

    def test_sparklines(self):
        assert sparkline([0, 0.5, 1]) == "▁▄█"
        assert sparkline([2, -1]) == "█▁"
        assert sparkline([0.15, 0.19, 0.55], 0.1, 1.0) == "▁▁▄", "noise looks like no climb"


class TestTrackers:
    def test_tensorboard_writes_what_was_recorded(self, tmp_path):
        pytest.importorskip("tensorboard", reason="pip install '.[tensorboard]'")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        write(tmp_path / "run", open_trackers(recipe("tensorboard"), tmp_path / "run", print))
        events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
        events.Reload()
        assert [round(e.value, 3) for e in events.Scalars("train/reward")] == [0.1, 0.2, 0.3]
        assert [e.step for e in events.Scalars("train/reward")] == [1, 2, 3]
        assert set(events.Tags()["scalars"]) == {"rl/step", "train/reward", "eval/mean_reward"}, (
            "no KL was computed"
        )

    def test_trackio_stores_what_was_recorded(self, tmp_path, monkeypatch):
        pytest.importorskip("trackio", reason="pip install '.[trackio]'")
        import sqlite3

        monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        for name in [name for name in sys.modules if name.startswith("trackio")]:
            monkeypatch.delitem(sys.modules, name)  # its folder is read when it is imported
        write(tmp_path / "run", open_trackers(recipe("trackio"), tmp_path / "run", print))
        (database,) = (tmp_path / "trackio").glob("*.db")
        with sqlite3.connect(database) as connection:
            stored = " ".join(str(row) for row in connection.execute("SELECT * FROM metrics"))
            alerts = list(connection.execute("SELECT title, level FROM alerts"))
        assert "train/reward" in stored
        assert "0.3" in stored
        assert alerts == [
            ("warning: look here", "warn"),
            (f"fatal: {FATAL}", "error"),
        ]

    def test_wandb_offline_writes_a_run(self, tmp_path, monkeypatch):
        pytest.importorskip("wandb", reason="pip install '.[wandb]'")
        monkeypatch.setenv("WANDB_MODE", "offline")
        monkeypatch.setenv("WANDB_SILENT", "true")
        write(tmp_path / "run", open_trackers(recipe("wandb"), tmp_path / "run", print))
        (stored,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
        # its own process writes the file, and finishes after our `finish` came back
        until = time.monotonic() + 60
        wanted = (b"train/reward", f"fatal: {FATAL}".encode(), b"ERROR")
        while not all(one in stored.read_bytes() for one in wanted) and time.monotonic() < until:
            time.sleep(0.05)
        assert all(one in stored.read_bytes() for one in wanted)

    def test_one_that_is_not_installed_says_how_to_install_it(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "trackio", None)
        with pytest.raises(RunError, match=r"needs trackio(.|\n)*'\.\[trackio\]'"):
            open_trackers(recipe("trackio"), tmp_path, print)

    def test_one_that_does_not_start_is_an_error_now(self, tmp_path, monkeypatch):
        def broken(recipe, folder):
            raise OSError("no network")

        monkeypatch.setitem(TRACKERS, "wandb", broken)
        with pytest.raises(RunError, match=r"wandb .*no network"):
            open_trackers(recipe("wandb"), tmp_path, print)

    def test_one_that_fails_later_is_said_once_and_costs_nothing(self, tmp_path):
        class Failing:
            calls = 0

            def metrics(self, row):
                self.calls += 1
                raise OSError("server gone")

        said = []
        failing = Failing()
        write(tmp_path / "run", [GuardedTracker("wandb", failing, said.append)])
        assert failing.calls == 1
        assert [one.endswith("OSError: server gone") for one in said] == [True]
        assert len(RunRecord.read(tmp_path / "run").rows("rl")) == 3


@pytest.mark.parametrize("terminal", [False, True])
def test_texts_go_on_as_far_in_as_they_begin_and_are_whole_for_another_program(
    capsys, monkeypatch, terminal
):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1" if terminal else "")
    print_tables(Text(f"found: {'a b ' * 20}\n    do: {'c d ' * 20}"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (6 if terminal else 2)
    assert all(len(line.rstrip()) <= 40 for line in lines) == terminal
    assert [line.startswith("    ") for line in lines] == [False] * (len(lines) // 2) + [True] * (
        len(lines) // 2
    )


HOSTILE = "\x1b[31mred\x07\x9b\x7f \u202eend\u200b\u2060\xad\U000e0041[/b] [red] :smile:"


def test_nothing_that_others_wrote_drives_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    table = Table(HOSTILE)
    table.add_row(HOSTILE)
    view = LiveView()
    view.stage(HOSTILE, 3, 0)
    view.working(HOSTILE, 0, 1)
    view.event("note", HOSTILE)
    print_tables(table, Text(HOSTILE, style="red"), HOSTILE, wrap=False)
    print_text(f"{HOSTILE}\n\tb")
    shown = "".join(capsys.readouterr())
    for hidden in re.sub(r"[ -~]", "", HOSTILE):
        assert hidden not in shown
    assert shown.count("[/b] [red] :smile:") >= 6
    print_json({"id": HOSTILE})
    (line,) = capsys.readouterr().out.splitlines()
    assert line.isascii()
    assert json.loads(line) == {"id": HOSTILE}
