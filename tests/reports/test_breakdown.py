"""Seen and held out, by stratum and by kind; replays in the report; and nothing of it where a task
has none."""

import csv
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from plumbline.records import Figure, Frame, Headline, Judged, Mistake
from plumbline.reports.build_tables import all_tables
from plumbline.reports.templating import PICTURES
from plumbline.reports.verdict import rise_sentences, run_verdict
from plumbline.reports.view import RunView
from plumbline.reports.write import run_summary, write_report
from plumbline.runs.evaluations import EvaluationKey, Replay, write_replays
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from tests.reports.building import BASE, RL, SFT, evaluation, recipe, references
from tests.reports.reading import ATTRIBUTES, ELEMENTS, Page

HEADLINE = Headline(
    figures=(Figure(key="field_accuracy", title="Field accuracy", part="fields"),),
    stratum="form",
    breakdown="kind",
    prefix="kind-",
    note="a note <of> the task",
)
BREAKDOWN, PARTS, SAMPLES = "Seen and held out", "Parts and strata", "Samples side by side"
DARK = "there is no browser; install one"
SIZES = {"val": 40, "test": 60, "unseen": 32}
HOSTILE = "<script>alert(1)</script>\u202e"


def with_kinds(row: Judged) -> Judged:
    number = row.parts.get("numbers")
    return replace(
        row, parts={**row.parts, "kind-text": row.parts["fields"], "kind-number": number}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Base, SFT and GRPO on three splits, of which the recipe names two; the unseen one gains
    less."""
    folder = tmp_path_factory.mktemp("breakdown") / "run"
    with Run.start(recipe(), folder) as run:
        for split, n in SIZES.items():
            levels = {"base": BASE, "sft": SFT, "rl": SFT if split == "unseen" else RL}
            for name, found in references(split, n).items():
                run.evaluation(
                    EvaluationKey("reference", split, name), replace(found, headline=HEADLINE)
                )
            for number, (stage, level) in enumerate(levels.items()):
                made = evaluation(stage, split, "greedy", level, n, number, with_kinds)
                run.evaluation(
                    EvaluationKey(stage, split, "greedy"), replace(made, headline=HEADLINE)
                )
        frames = (
            Frame(caption=HOSTILE, image=b"\xff\xd8one"),
            Frame(caption="then", image=b"\xff\xd8two"),
        )
        shown = Replay(
            id="push-test-0003",
            stratum="push",
            reward=0.0,
            mistakes=(Mistake(what="Name", expected="Ana", received=HOSTILE),),
            frames=frames,
        )
        dark = Replay(
            id="sql-test-0001",
            stratum="sql",
            reward=0.1,
            problem=DARK,
        )
        write_replays(run.replays(EvaluationKey("rl", "test", "greedy")), [shown, dark])
        run.finish({"status": "finished", "model": "m"})
    write_report(run)
    return folder


@pytest.fixture
def view(folder):
    return RunView(RunRecord.read(folder))


@pytest.fixture
def html(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


def test_the_verdict_still_speaks_of_the_recipes_last_split(view):
    assert view.extra_splits == ["unseen"]
    assert view.splits == ["val", "test", "unseen"]
    assert view.headline == ("test", "greedy")
    assert "60 held-out test examples" in run_verdict(view).sentence


def test_every_split_says_by_how_much_the_reward_rose_from_the_first_stage_to_the_last(
    view, html, folder
):
    said = rise_sentences(view)
    assert [re.match(r"On (\w+) \((\d+)", line).groups() for line in said] == [
        (s, str(n)) for s, n in SIZES.items()
    ]
    for split, line in zip(SIZES, said, strict=True):
        before, after = (view.final(stage, split, "greedy").mean_reward for stage in ("base", "rl"))
        assert (
            f"rose: {before:.3f} Base, {after:.3f} GRPO, difference +{after - before:.3f} [" in line
        )
        assert line in (folder / "report.md").read_text(encoding="utf-8").replace("\\", "")
    text = Page(html).text
    for said in ("unseen (32 examples)", "unseen: ", HEADLINE.note):
        assert said in text


def test_the_tables_hold_every_figure_stratum_and_kind_of_every_split(folder, view):
    with (folder / "tables" / "rise.csv").open() as file:
        rise = list(csv.DictReader(file))
    assert [(row["split"], row["figure"]) for row in rise] == [
        (split, figure) for split in SIZES for figure in ("reward", "Field accuracy")
    ]
    for row in rise:
        assert float(row["difference"]) == pytest.approx(float(row["after"]) - float(row["before"]))
    with (folder / "tables" / "breakdown.csv").open() as file:
        rows = list(csv.DictReader(file))
    wanted = [("form", name) for name in ("extraction", "insight", "push", "sql")]
    wanted += [("kind", "text"), ("kind", "number")]
    assert [(row["split"], row["by"], row["name"]) for row in rows] == [
        (split, *pair) for split in SIZES for pair in wanted
    ]
    numbers = next(row for row in rows if (row["split"], row["name"]) == ("test", "number"))
    after = [row.parts["kind-number"] for row in view.final("rl", "test", "greedy").rows]
    known = [value for value in after if value is not None]
    assert int(numbers["n"]) == len(known) < 60
    assert float(numbers["after"]) == pytest.approx(sum(known) / len(known))


def test_seen_and_held_out_stand_side_by_side(html):
    captions = re.findall(r"<figcaption>.*?<b>([^<]*)</b>", html)
    for what in ("Reward by form", "Accuracy by kind"):
        assert [c for c in captions if c.startswith(what)] == [
            f"{what} on test",
            f"{what} on unseen",
        ]
    headings = Page(html).headings
    order = [headings.index(one) for one in (PARTS, BREAKDOWN)]
    assert order[1] == order[0] + 1


def test_replays_are_pictures_in_the_file_with_what_was_wrong(html):
    assert html.count("<img ") == html.count('<img src="data:image/jpeg;base64,') == 2
    assert f"default-src 'none'; style-src 'unsafe-inline'{PICTURES}" in html
    page = Page(html)
    assert page.headings.index("Episodes, replayed") > page.headings.index(SAMPLES)
    assert DARK in page.text
    assert "Ana" in page.text
    assert page.elements - ELEMENTS == {"img"}
    assert {name for _, name, _ in page.attributes} - ATTRIBUTES == {"src", "alt"}
    assert not page.wrong
    assert "<script" not in html
    assert "\u202e" not in html


def test_the_end_of_a_run_says_it_on_the_terminal(view):
    shown = io.StringIO()
    Console(width=300, file=shown).print(run_summary(view.run))
    assert "unseen (32 examples)" in shown.getvalue()


def test_a_task_without_a_headline_and_further_splits_has_none_of_it(finished, html):
    plain = (finished.folder / "report.html").read_text(encoding="utf-8")
    assert BREAKDOWN not in plain
    assert "replayed" not in plain
    assert "img-src" not in plain
    assert not {"rise", "breakdown"} & {
        table.name for table in all_tables(RunView(finished.record()))
    }


def test_one_stage_has_no_section_of_it(tmp_path):
    with Run.start(recipe(), tmp_path / "run") as run:
        made = evaluation("base", "test", "greedy", BASE, 8, 0, with_kinds)
        run.evaluation(EvaluationKey("base", "test", "greedy"), replace(made, headline=HEADLINE))
    assert BREAKDOWN not in Page(write_report(run).read_text(encoding="utf-8")).headings
    with (run.folder / "tables" / "breakdown.csv").open() as file:
        assert list(csv.DictReader(file)) == []
