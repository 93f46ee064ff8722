"""The whole report: what it holds for every kind of run, that nothing in it can act, and that it
stays small."""

import base64
import hashlib
import io
import json
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from plumbline.evaluation.statistics import Interval
from plumbline.records import Judged, Unjudged
from plumbline.reports.build_tables import changes_tables
from plumbline.reports.page_sections import HEALTH, name_gold, values_read
from plumbline.reports.templating import POLICY, clip_middle, read_template, render_template
from plumbline.reports.view import EXAMPLES, RunView
from plumbline.reports.write import run_summary, write_report
from plumbline.runs.evaluations import EvaluationKey, write_evaluation
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from plumbline.storage import write_jsonl
from tests.reports import building
from tests.reports.building import (
    BASE,
    RL,
    SFT,
    evaluation,
    examples,
    finished_run,
    recipe,
    references,
)
from tests.reports.reading import ATTRIBUTES, ELEMENTS, Page

SECTIONS = [
    *(
        "What the checks say",
        "Before and after",
        "Curves",
        "How answers were read",
        "Parts and strata",
    ),
    *("Samples side by side", "Time and tokens", "Recipe, environment, events"),
]
LIMIT = 500_000
PROMPT = "o produto chegou com 12 dias de atraso"
CSS = render_template("style.css")
LIGHT, DARK = (
    dict(re.findall(r"--(\w+):(#\w+);", scheme))
    for scheme in read_template("palette.css").split("@media")
)


def answers(run: Run) -> dict:
    """The data of the page of all answers."""
    text = (run.folder / "samples.html").read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    return json.loads(found)


def report(run: Run, **arguments) -> tuple[str, Page]:
    text = write_report(run, **arguments).read_text(encoding="utf-8")
    page = Page(text)
    assert not page.wrong
    assert page.elements <= ELEMENTS
    assert {name for _, name, _ in page.attributes} <= ATTRIBUTES
    assert len(text.encode()) < LIMIT
    return text, page


# -- a finished run --------------------------------------------------------------------------------


def test_the_sections_stand_in_their_order(html):
    page = Page(html)
    assert page.headings == SECTIONS
    assert not page.wrong


def test_the_verdict_comes_first_and_the_key_figures_follow(html):
    page = Page(html)
    texts = [text for text in page.texts if text.strip()]
    start = texts.index("commerce-demo", 5)
    assert re.findall(r"(\d+) steps", texts[start + 1]) == ["40", "30", "60"]
    assert texts[start + 3].startswith(
        "GRPO raised the greedy reward on 59 held-out test examples from "
    )
    assert html.count('<div class="card">') == 6
    assert "not finished" not in page.text


def test_what_the_checks_find_stands_at_the_top_and_in_full_below(own):
    rows = own.files["metrics"].rows()
    still = [{**row, "train/grad_norm": 0.0} if row["stage"] == "rl" else row for row in rows]
    write_jsonl(own.folder / "metrics.jsonl", still)
    text, page = report(RunRecord.read(own.folder))
    assert (
        text.index("The checks found")
        < text.index("fatal: the gradient")
        < text.index("Before and after</h2>")
    )
    assert "GRPO, fatal" in page.text
    assert "(no-signal)" in page.text
    assert "do: " in page.text
    marked = (own.folder / "report.md").read_text()
    assert f"## {SECTIONS[0]}" in marked
    assert "fatal: " in marked.split("## ")[0]


def test_nothing_in_it_reaches_out_or_runs(html):
    page = Page(html)
    for _, name, value in page.attributes:
        assert not name.startswith("on")
        assert name != "src"
        assert not re.match(r"\s*(https?:|//|javascript:|data:)", value)
        if name == "href":
            assert re.fullmatch(r"#[a-z]+|samples.html", value)
    assert "url(" not in html
    assert "@import" not in html
    assert "<script" not in html
    assert "default-src 'none'" in html
    anchors = {value for _, name, value in page.attributes if name == "id"}
    linked = {value[1:] for _, name, value in page.attributes if name == "href" and value[0] == "#"}
    assert len(SECTIONS) == len(linked)
    assert linked <= anchors


def test_the_same_records_give_the_same_bytes(finished, tmp_path):
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(finished.folder, copy)
    for name in ("report.html", "report.md"):
        (copy / name).unlink()
    shutil.rmtree(copy / "tables")
    write_report(RunRecord.read(copy), {"": examples("test", 59)})
    names = {"report.html", "report.md"}
    made = [path for path in copy.rglob("*") if path.name in names or path.parent.name == "tables"]
    assert len(made) == 16
    for path in made:
        written, again = (finished.folder / path.relative_to(copy)).read_bytes(), path.read_bytes()
        # the environment of this fixture names the folder of the first run, as another machine's
        # would
        assert written.replace(b"RUN/models", b"X") == again.replace(
            f"{finished.folder}/models".encode(), b"X"
        )


def test_files_are_written_atomically_and_nothing_else_changes(finished):
    assert not list(finished.folder.rglob("*.tmp"))
    names = {path.name for path in finished.folder.iterdir()}
    assert names - {"report.html", "report.md", "samples.html", "examples.jsonl", "tables"} == {
        *(
            "recipe.yaml",
            "environment.json",
            "metrics.jsonl",
            "timings.jsonl",
            "samples.jsonl",
            "events.jsonl",
        ),
        *("evaluations", "result.json", ".lock", ".plumbline"),
    }


def test_strict_and_lenient_stand_side_by_side_with_the_count_of_what_is_lost(html):
    text = Page(html).text
    assert "Reward (lenient)" in text
    assert re.search(r"Lost by strict parsing(\d+) → (\d+)of 59 ", text)
    assert "fence+decimal_comma" in text


def test_samples_have_prompt_gold_and_both_answers(html):
    assert html.count('<article class="sample">') == 10
    text = Page(html).text
    assert text.count("What was read") == 10
    assert PROMPT in text
    assert "Responda só com JSON" not in text  # the system's message is not the last user message


def test_each_value_is_marked_by_what_its_part_earned():
    parts = {"a": 1.0, "b": 0.0, "c": 0.5}
    row = Judged(
        id="x",
        stratum="",
        completion='{"a": 1, "b": 2}',
        reward=0.5,
        parts=parts,
        readings={},
        how="strict",
    )
    made = values_read(
        '{"a": 1, "b": 3, "c": "d"}', {"SFT": row, "GRPO": replace(row, completion="a: 1")}
    )
    text = Page(made.to_html()).text
    for said in ("✓ 1", "✗ 2", "0.50 (not said)", "✓ (no plain object)", "✗ (no plain object)"):
        assert said in text
    assert values_read("no JSON", {"SFT": row}) is None


def test_where_other_answers_earn_everything_gold_is_one_of_many():
    right = Judged(
        id="x",
        stratum="",
        completion='{"n": 7, "m": 2}',
        reward=1.0,
        parts={},
        readings={},
        how="strict",
    )
    wrong = replace(right, reward=0.4, completion='{"n": 5, "m": 1}')

    def cells(several):
        made = values_read('{"n": 5, "m": 3}', {"SFT": wrong, "GRPO": right}, several=several)
        return made.columns[1].title, [row.cells[2:] for row in made.rows]

    assert cells(several=True) == ("Gold, one of many", [("✓ 5", "✓ 7"), ("1", "✓ 2")])
    assert cells(several=False) == ("Gold", [("✓ 5", "✓ 7"), ("✗ 1", "✓ 2")])


def test_of_a_long_answer_both_ends_are_shown():
    text = "begin " + "<" * 5000 + " end"
    shown = clip_middle(text, 300)
    assert shown.startswith("begin <")
    assert shown.endswith("< end")
    left = int(re.search(r"… ([\d,]+) more", shown).group(1).replace(",", ""))
    assert left == len(text) - len(shown.replace(f"\n… {left:,} more characters …\n", ""))
    assert clip_middle(text[:50], 5000) == text[:50]


def test_without_examples_gold_comes_from_the_oracle_and_no_prompt_is_invented(own):
    _, kept = report(own)
    assert PROMPT in kept.text, "the run has them from its first report"
    (own.folder / EXAMPLES).unlink()
    _, page = report(own)
    assert page.text.count("What was read") == 10
    assert PROMPT not in page.text


def test_no_kl_is_shown_where_none_was_computed(html, tmp_path):
    text = Page(html).text
    assert "rl.beta is 0" in text
    assert HEALTH["train/kl"][0] not in re.findall(r"<b>([^<]*)</b>", html)
    with Run.start(recipe(rl={"steps": 60, "beta": 0.1}), tmp_path / "run") as run:
        building.write_rl(run, 20, beta=0.1, evaluate=False)
    with_kl, page = report(run)
    assert HEALTH["train/kl"][0] in re.findall(r"<b>([^<]*)</b>", with_kl)
    assert "rl.beta is 0" not in page.text


def test_markdown_holds_verdict_tables_and_samples(finished):
    text = (finished.folder / "report.md").read_text(encoding="utf-8")
    assert text.startswith("# commerce-demo\n")
    assert "**GRPO raised the " in text
    for heading in (
        "Before and after",
        "How answers were read",
        "Parts and strata",
        "Samples side by side",
        "Recipe",
    ):
        assert f"\n## {heading}\n" in text
    assert "````text\nClaro!" in text  # a longer fence around the model's own
    assert text.index("\n## Time and tokens\n") < text.index("| rollouts | GRPO |")


def test_every_page_calls_the_gold_answer_by_one_name(finished, view):
    data = answers(finished)
    (name,) = {data["texts"][row[7]] for row in data["rows"] if row[0] != "training"}
    assert name == name_gold(view)
    assert name in (finished.folder / "report.md").read_text(encoding="utf-8")


# -- other runs ------------------------------------------------------------------------------------


def test_strata_of_too_few_clusters_have_no_interval_and_others_have(tmp_path):
    """Each stratum has two wordings, and all together eight."""

    def change(row: Judged) -> Judged:
        return replace(row, cluster=f"{row.stratum} {int(row.id[-4:]) // 4 % 2}")

    with Run.start(recipe(), tmp_path / "run") as run:
        evaluate_both(run, 64, change)
        run.finish({"status": "finished"})
    _, page = report(run)
    view = RunView(run.record())
    parts, strata = changes_tables(view.compare_on_each_split())
    for table, known in ((parts, True), (strata, False)):
        for row in table.rows:
            intervals = [cell for cell in row.cells if isinstance(cell, Interval)]
            assert len(intervals) == 3
            assert [math.isfinite(one.low) for one in intervals] == [known] * 3
    assert math.isnan(strata.rows[0].cells[6])
    assert "n = 64 in 8 clusters" in page.text.replace("\u00a0", " ")


def test_bars_of_time_are_as_long_as_their_shares(html, view):
    cost = html[html.index('<section id="cost">') :]
    widths = [float(width) for width in re.findall(r'style="width:([\d.]+)%"', cost)]
    total = sum(view.seconds.values())
    assert widths == [pytest.approx(100 * one / total, abs=0.06) for one in view.seconds.values()]
    assert len(set(widths)) == len(widths) > 3


def test_the_end_of_a_run_has_answers_first_and_the_verdict_last(finished):
    shown = io.StringIO()
    print_to = Console(file=shown, width=200)
    for part in run_summary(finished.record()).renderables:
        print_to.print(part)
    text = shown.getvalue()
    order = [
        text.index(one) for one in (PROMPT, "bars from 0.30 to 1.00", "GRPO raised", "checks ")
    ]
    assert order == sorted(order)
    assert text.count(PROMPT) == 6
    assert len(text[text.index("GRPO raised") :].splitlines()) < 20


def test_a_run_in_progress_says_so_with_its_last_step(tmp_path):
    with Run.start(recipe(), tmp_path / "run") as run:
        building.write_supervised(run, "sft", 30)
        building.write_rl(run, 23)
        building.write_evaluations(run, {"base": BASE, "sft": SFT}, 20)
    _, page = report(run)
    said = "GRPO 23 of 60."
    assert said in page.text
    assert page.text.index(said) < page.text.index("So far, SFT")
    assert "RUN/recipe.yaml --out RUN --resume" in page.text
    assert "Not finished." in (run.folder / "report.md").read_text(encoding="utf-8")


def only_sft(run):
    building.write_supervised(run, "sft", 30)
    building.write_evaluations(run, {"base": BASE, "sft": SFT}, 30)
    run.finish({"status": "finished"})


def without_evaluations(run):
    building.write_supervised(run, "sft", 5)
    building.write_rl(run, 3, evaluate=False)


def begun(run):
    pass


def only_references(run):
    for name, found in references("test", 10).items():
        run.evaluation(EvaluationKey("reference", "test", name), found)


def bare(run):
    def change(row: Judged) -> Judged:
        return replace(row, readings={}, parts={}, how="", stratum="", truncated=None, tokens=None)

    evaluate_both(run, 20, change)
    run.finish({"status": "finished"})


def evaluate_both(run, n, change):
    for number, (stage, level) in enumerate({"sft": SFT, "rl": RL}.items()):
        made = evaluation(stage, "test", "greedy", level, n, number, change)
        run.evaluation(EvaluationKey(stage, "test", "greedy"), made)


SAID = {
    only_sft: ["SFT raised the greedy reward on 30 held-out test examples"],
    without_evaluations: [
        "No stage has been evaluated yet",
        "All answers on one page",
    ],
    begun: ["This run is not finished: no step has been recorded yet."],
    only_references: ["Baseline: constant (floor)"],
    bare: ["no baseline and no oracle"],
}
LEFT_OUT = {
    without_evaluations: {"Before and after", "How answers were read", "Parts and strata"},
    begun: set(SECTIONS[:-1]),
    only_references: {"Curves", "Time and tokens"},
    bare: {"How answers were read", "Parts and strata", "Curves"},
}
"""Sections that have nothing to say."""


@pytest.mark.parametrize("wrote", SAID, ids=lambda wrote: wrote.__name__)
def test_a_run_of_less_says_what_is_missing(tmp_path, wrote):
    with Run.start(recipe(**({"rl": None} if wrote is only_sft else {})), tmp_path / "run") as run:
        wrote(run)
    _, page = report(run)
    assert [text for text in SAID[wrote] if text not in page.text] == []
    assert not LEFT_OUT.get(wrote, set()) & set(page.headings)
    assert wrote is not only_sft or not ("GRPO" in page.text or "Health of RL" in page.text)


def in_turns(row: Judged) -> Judged:
    return replace(
        row, turns=("first <b>try</b>", row.completion), asked=("the page says no",), cut=True
    )


def test_episodes_are_shown_turn_by_turn(tmp_path):
    """In the samples of two stages; and, before there are two, in the rollouts of training."""
    with Run.start(recipe(), tmp_path / "run") as run:
        row = in_turns(evaluation("rl", "train", "greedy", RL, 1, 0).rows[0])
        kept = {
            "step": 1,
            "id": row.id,
            "text": row.completion,
            "reward": 0.5,
            "parts": {},
            "how": "strict",
        }
        run.sample({**kept, "turns": row.turns, "asked": row.asked})
        report(run)
        training = answers(run)
        evaluate_both(run, 12, in_turns)
    _, page = report(run)
    assert [row[0] for row in training["rows"]] == ["training"]
    assert page.text.count("Turn 2") == 20, "ten examples before and after"
    assert "Asked before turn 2" in page.text
    for shown in (training["texts"][training["rows"][0][4]], page.text):
        assert "first <b>try</b>" in shown
        assert row.asked[0] in shown
    assert len(answers(run)["rows"]) == 1 + 2 * 12
    assert "not fit into" in page.text
    assert not page.wrong


def test_a_negative_control_has_its_banner(tmp_path):
    run = finished_run(
        tmp_path / "run",
        n=20,
        levels={"sft": SFT, "rl": SFT},
        rl={"steps": 60},
        controls={"shuffle_advantages": True},
    )
    html, page = report(run)
    assert 'class="banner control"' in html
    assert 'class="verdict control"' in html
    assert "Negative control (" in page.text


def test_warnings_are_at_the_top_and_notes_are_not(tmp_path):
    with Run.start(recipe(), tmp_path / "run") as run:
        run.event("note", "only a note")
        run.event("dead_part", "the part 'numbers' of the reward was 0 in all of 200 rollouts")
        for number in range(8):
            run.event("truncated", f"cut {number}")
    html, page = report(run)
    top = html[: html.index("<h2>")]
    assert "dead_part: the part &#x27;numbers&#x27;" in top
    assert "cut 4" in top
    assert "cut 5" not in top
    assert "and 3 more" in top
    assert "only a note" not in top
    assert "only a note" in page.text


def test_failures_are_counted_and_named(own):
    key = EvaluationKey("rl", "test", "greedy")
    found = own.evaluations()[key]
    row = found.rows[0]
    broken = Unjudged(
        id=row.id,
        stratum=row.stratum,
        completion=row.completion,
        failure="ZeroDivisionError: a bug",
    )
    write_evaluation(
        own.evaluation_file(key), replace(found, rows=found.rows[1:], unjudged=(broken,))
    )
    html, page = report(own)
    table = html[html.index("Mean reward on test [each 95") :]
    row = re.search(r'<tr><th scope="row">GRPO</th><td[^>]*>greedy</td>.*?</tr>', table)
    assert row is not None
    assert row.group().endswith('data-label="Failures">1</td></tr>')
    assert "1 because of ZeroDivisionError: a bug" in page.text
    assert "1 held-out example left out" in page.text


def test_stages_under_two_rubrics_are_not_compared_and_that_is_said(own):
    """The greedy answers of the last stage were judged again; neither checks nor report compare
    them with others."""
    key = EvaluationKey("rl", "test", "greedy")
    write_evaluation(own.evaluation_file(key), replace(own.evaluations()[key], rubric="other/2"))
    _, page = report(own)
    assert "rubric commerce/1+abc123" in page.text
    assert "SFT → GRPO: not comparable" in page.text


def test_nothing_tells_where_the_run_lay(finished, html):
    assert str(finished.folder) not in html
    assert str(finished.folder) not in (finished.folder / "report.md").read_text(encoding="utf-8")
    assert "RUN/models/sft" in Page(html).text


# -- hostile text ----------------------------------------------------------------------------------

EVIL = (
    "\"><script>alert(1)</script><img src=x onerror=alert(2)>' "
    "onmouseover='alert(3)</pre></style></title><!--"
    " https://evil.example/x ]]> &lt; \x00\x07\u202e\u2028 \ud83d\ude00".encode(
        "utf-16", "surrogatepass"
    ).decode("utf-16")
)


def hostile_run(folder: Path) -> Run:
    """Hostile text wherever text comes from: the model, the task, the recipe, events, environment,
    file names."""

    def change(row: Judged) -> Judged:
        return replace(
            row,
            id=f"{EVIL}{row.id}",
            stratum=f"{EVIL}{row.stratum}",
            completion=f"{EVIL}{row.completion}```\n~~~",
            how=f"{EVIL}{row.how}",
            parts={f"{EVIL}{name}": value for name, value in row.parts.items()},
        )

    values = recipe(description=EVIL, task={"name": EVIL, "options": {EVIL: EVIL}})
    with Run.start(values, folder) as run:
        run.environment({"engine": {EVIL: EVIL}, "model": EVIL, EVIL: [EVIL]})
        run.event(EVIL, EVIL)
        run.event("warning", EVIL)
        run.metrics("rl", 1, {"train/reward": 0.5, f"train/reward/{EVIL}": 0.5})
        run.metrics(EVIL, 1, {"train/loss": 0.5})
        run.timings(EVIL, 1, {f"time/{EVIL}": 1.0})
        evaluate_both(run, 20, change)
        baseline = EVIL.replace("/", "").replace(".", "").replace("\x00", "")
        made = evaluation("rl", "test", "greedy", RL, 20, 1, change)
        run.evaluation(EvaluationKey("reference", "test", baseline), replace(made, source=baseline))
        run.finish({"status": EVIL})
    return run


def test_hostile_text_is_text_everywhere(tmp_path):
    run = hostile_run(tmp_path / "run")
    names = [row.id for row in run.evaluations()[EvaluationKey("rl", "test", "greedy")].rows]
    asked = [
        replace(e, messages=[{"role": "user", "content": EVIL}], gold=EVIL)
        for e in examples("test", 20).values()
    ]
    html, page = report(
        run, examples={"": {n: replace(e, id=n) for n, e in zip(names, asked, strict=True)}}
    )
    assert "script" not in page.elements
    assert "img" not in page.elements
    assert not [name for _, name, _ in page.attributes if name.startswith("on") or name == "src"]
    assert "<script" not in html.lower()
    assert not set(html) & set("\x00\x07\u202e\u2028")
    assert page.text.count("<script>alert(1)</script>") > 50  # it is all there, as text
    assert all(value.count("(") == 0 for _, name, value in page.attributes if name == "style")
    check_samples_page(run, rows=40)


def check_samples_page(run: Run, rows: int) -> None:
    """Its only code is ours, by the hash in its own policy; what models wrote is JSON."""
    text = (run.folder / "samples.html").read_text(encoding="utf-8")
    page = Page(text)
    assert text.count("<script") == text.count("</script") == 2
    assert not [name for _, name, _ in page.attributes if name.startswith("on") or name == "src"]
    assert "<img" not in text
    (script,) = re.findall(r"<script>(.*?)</script>", text)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy == f"{POLICY}; script-src 'sha256-{digest}'"
    assert "innerHTML" not in script
    data = answers(run)
    assert len(data["rows"]) == rows
    assert sum("<script>alert(1)</script>" in data["texts"][row[4]] for row in data["rows"]) > 10
    assert not set(text) & set("\x00\x07\u202e\u2028")


def test_hostile_text_cannot_break_out_of_markdown_or_tables(tmp_path):
    run = hostile_run(tmp_path / "run")
    write_report(run)
    text = (run.folder / "report.md").read_text(encoding="utf-8")
    outside, fence = [], ""
    for line in text.splitlines():
        run_of_ticks = re.match(r"`{3,}", line)
        if fence:
            fence = "" if line == fence else fence
        elif run_of_ticks:
            fence = run_of_ticks.group()
        else:
            outside.append(line)
    assert not fence
    assert "<script" not in "\n".join(outside)
    assert "<img" not in "\n".join(outside)
    for path in (run.folder / "tables").glob("*.tex"):
        assert not re.search(
            r"(?<!\\)[#%]", "".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[2:])
        )


def test_half_a_surrogate_in_a_record_of_another_machine_is_survived(own):
    path = own.folder / "evaluations" / "rl.test.greedy.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("Claro!", "\\ud800Claro!").replace("negativo", "\\udfff"), "utf-8")
    html, _ = report(own)
    assert "\ufffd" in html


# -- size, colours, imports ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_thousand_steps_and_two_thousand_long_answers_stay_under_500_kb(tmp_path):
    def long(row: Judged) -> Judged:
        return replace(
            row, completion=row.completion + "<&\"'>ç" * 2000, how=f"{row.how}{row.id[-3:]}"
        )

    values = recipe(
        rl={"steps": 1000}, evaluation={"every": 5, "limit": 24}, description="<" * 50_000
    )
    with Run.start(values, tmp_path / "run") as run:
        building.write_supervised(run, "sft", 1000)
        building.write_rl(run, 1000, every=5, n=16)
        evaluate_both(run, 2000, long)
        for number in range(500):
            run.event("warning", f"{number} " + "<" * 2000)
    text, page = report(
        run,
        examples={"": {k: replace(e, gold="<" * 9000) for k, e in examples("test", 2000).items()}},
    )
    assert len(text.encode()) > 150_000  # the test has something to hold down
    assert page.headings == SECTIONS


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_colour_is_readable_on_both_backgrounds(palette):
    for name in ("text", "muted", "c1", "c2", "c3", "c4"):
        for behind in ("page", "panel"):
            assert contrast(palette[name], palette[behind]) >= 4.5, (name, behind)


def test_the_style_follows_the_readers_scheme_and_names_no_unknown_variable():
    assert "prefers-color-scheme:dark" in CSS
    used, defined = set(re.findall(r"var\(--(\w+)\)", CSS)), set(re.findall(r"--(\w+):", CSS))
    assert used == defined == set(LIGHT) == set(DARK)
    assert CSS.count("{") == CSS.count("}")


def test_a_report_needs_no_torch_and_no_plotting():
    code = (
        "import sys, plumbline.reports.write; print(*sorted({name.partition('.')[0] for name in "
        "sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "numpy" in loaded
    assert not {"torch", "transformers", "matplotlib", "plotly", "jinja2", "scipy", "pandas"} & set(
        loaded
    )
