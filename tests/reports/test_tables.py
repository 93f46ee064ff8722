import csv
import io
import math
import re

import pytest

from plumbline.evaluation.comparison import compare
from plumbline.evaluation.statistics import Interval, t_interval
from plumbline.evaluation.summary import count_rescued, summarise
from plumbline.records import Judged
from plumbline.reports import build_tables
from plumbline.reports import templating as page
from plumbline.reports.format_numbers import format_interval
from plumbline.reports.table_formats import Column, Row, Table
from plumbline.reports.view import RunView, oracle_interval
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.run import Run
from tests.reports.reading import ELEMENTS, Page

HOSTILE = [
    '=HYPERLINK("http://evil","x")',
    "+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    " =1",
    "＝1",
    'a,"b"\nc',
    "<script>alert(1)</script>",
    "a|b\\|c",
    "![x](http://evil/x.png) [y](javascript:1)",
    "`code` *bold* _under_score ~~no~~ # $x^2$",
    r"\input{/etc/passwd} 100% & $x_1^2$ #{~}<>|\"[*]",
    "\x00\x1b[31m\u202eabc\ud800",
]
COLUMNS = (
    Column("name", "Name"),
    Column("n", "n", "count"),
    Column("mean", "Mean", "interval"),
    Column("change", "Change", "change"),
    Column("p", "p", "p"),
    Column("share", "Share", "share"),
    Column("skill", "Skill", "number", 2),
)
NONE = Interval(math.nan, math.nan, math.nan, 0)


def table(names: list[str]) -> Table:
    up, down = Interval(0.319, 0.28, 0.357, 200), Interval(-0.012, -0.034, 0.01, 200)
    rows = [
        Row((name, 12500, up, down, 0.00019996, 0.125, -0.2), "reference" if i % 2 else "")
        for i, name in enumerate(names)
    ]
    return Table(
        "results",
        "A caption & 50 %",
        COLUMNS,
        (*rows, Row(("none", 0, NONE, None, None, None, math.nan))),
    )


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


# -- numbers ---------------------------------------------------------------------------------------


def test_each_form_shows_the_same_numbers():
    made = table(["model"])
    page = Page(made.to_html())
    assert "12,500" in page.texts
    assert "".join(page.texts).count("0.319 [0.280, 0.357]") == 1
    assert "\u22120.012 [\u22120.034, +0.010]" in page.text
    assert "< 0.001" in page.text
    assert "12.5 %" in page.text
    assert "\u22120.20" in page.text
    markdown = made.to_markdown()
    assert (
        "| model | 12,500 | 0.319 [0.280, 0.357] | -0.012 [-0.034, +0.010] | < 0.001 | 12.5 % | "
        "-0.20 |"
    ) in markdown
    latex = made.to_latex()
    assert (
        r"0.319 {[}0.280, 0.357{]} & $-$0.012 {[}$-$0.034, +0.010{]} & \textless{} 0.001 & 12.5 \% & $-$0.20"
        in latex
    )


def test_a_rise_has_its_sign_only_as_a_difference():
    made = Table(
        "t", "t", COLUMNS[2:4], (Row((Interval(0.3, 0.2, 0.4, 5), Interval(0.3, 0.2, 0.4, 5))),)
    )
    assert "| 0.300 [0.200, 0.400] | +0.300 [+0.200, +0.400] |" in made.to_markdown()


def test_what_was_not_computed_is_a_dash_and_an_empty_csv_cell_never_zero():
    made = table([])
    assert "| none | 0 | – | – | – | – | – |" in made.to_markdown()
    assert "none & 0 & -- & -- & -- & -- & --" in made.to_latex()
    assert rows_of(made.to_csv())[1] == ["none", "0", *[""] * 9]
    assert Page(table(["model"]).to_html()).texts.count("–") == 5


def test_a_page_leaves_out_columns_that_say_nothing():
    page = Page(table([]).to_html())
    assert [value for tag, name, value in page.attributes if name == "data-label"] == ["n"]


def test_csv_parses_back_to_the_full_numbers():
    header, first, *_ = rows_of(table(["model"]).to_csv())
    assert header == [
        *(
            "name",
            "n",
            "mean",
            "mean_low",
            "mean_high",
            "change",
            "change_low",
            "change_high",
            "p",
            "share",
            "skill",
        )
    ]
    assert first[0] == "model"
    assert [float(value) for value in first[1:]] == [
        *(12500, 0.319, 0.28, 0.357, -0.012, -0.034, 0.01, 0.00019996, 0.125, -0.2)
    ]


# -- escaping --------------------------------------------------------------------------------------


def test_no_csv_cell_of_text_is_a_formula():
    rows = rows_of(table(HOSTILE).to_csv())[1:-1]
    assert len(rows) == len(HOSTILE)
    for row, text in zip(rows, HOSTILE, strict=True):
        assert row[0].lstrip()[:1] not in {*"=+-@＝"}
        assert not row[0].startswith("\t")
        assert row[0].lstrip("'")[:3] == text[:3] or not text.isprintable()
    assert float(rows[0][5]) == -0.012  # numbers keep their sign


def test_hostile_cells_stay_one_markdown_cell_without_links_pictures_or_tags():
    lines = table(HOSTILE).to_markdown().splitlines()[4:-1]
    assert len(lines) == len(HOSTILE)
    for line in lines:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == len(COLUMNS) + 1
        name = line.split(" | 12,500 |")[0]
        assert not re.search(r"(?<!\\)(?:\\\\)*(?:[`*_\]]|\[(?!\d)|<(?! ))", name)


@pytest.mark.parametrize(
    "text", ["[12](http://evil)", "![1](x)", "[1][2]", "[1]: http://evil", "<b>", "<1>", "[x]"]
)
def test_no_markdown_link_picture_or_tag_is_made_of_numbers_either(text):
    made = page.escape_markdown(text)
    assert not re.search(r"(?<!\\)\](?=[(\[:])|(?<!\\)\[(?!\d)|<(?! )", made)


def test_hostile_cells_are_text_in_html():
    page = Page(table(HOSTILE).to_html())
    assert page.elements <= ELEMENTS
    assert "script" not in page.elements
    assert not page.wrong
    assert "<script>alert(1)</script>" in page.text


def test_latex_specials_are_escaped():
    lines = table(HOSTILE).to_latex().splitlines()
    start = lines.index(r"\midrule") + 1
    body = [line for line in lines[start:-2] if line != r"\midrule"]
    assert len(body) == len(HOSTILE) + 1  # no line break got through
    for line in body:
        assert line.endswith(r" \\")
        assert len(re.findall(r"(?<!\\)&", line)) == len(COLUMNS) - 1
        assert not re.search(r"(?<!\\)[%#_~^]", line.replace(r"\textasciitilde", ""))
        assert not line.startswith(("[", "*"))
    for escaped in (r"\textbackslash{}input\{/", r"100\% \& \$x\_1\textasciicircum{}2\$ \#\{"):
        assert escaped in "\n".join(body)


@pytest.mark.parametrize("form", ["to_html", "to_markdown", "to_csv", "to_latex"])
def test_nothing_invisible_gets_through(form):
    text = getattr(table(HOSTILE), form)()
    assert not set(text) & set("\x00\x1b\u202e")
    text.encode()  # no half of a surrogate pair
    assert "‹U+202E›" in text


def test_long_tables_are_cut_in_html_and_say_so():
    made = table([str(number) for number in range(100)])
    assert made.to_html(limit=10).count("<tr") == 11
    assert "91 more rows" in Page(made.to_html(limit=10)).text


# -- the report's tables ---------------------------------------------------------------------------


def by_name(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_results_equal_summarise(view):
    written = by_name((view.run.folder / "tables" / "results.csv").read_text(encoding="utf-8"))
    models = [row for row in written if row["mode"] != ""]
    assert len([row for row in models if row["source"] in {"Base", "SFT", "GRPO"}]) == 3 * 2 * 2
    for stage, name in (("base", "Base"), ("sft", "SFT"), ("rl", "GRPO")):
        for split in ("val", "test"):
            for mode in ("greedy", "sampled"):
                (row,) = [
                    r for r in models if (r["source"], r["split"], r["mode"]) == (name, split, mode)
                ]
                beside = {
                    k.mode: e
                    for k, e in view.evaluations.items()
                    if k.stage == "reference" and k.split == split
                }
                summary = summarise(view.evaluations[EvaluationKey(stage, split, mode)], beside)
                reward, strict = summary["reward"], summary["readings"]["strict"]
                wanted = {
                    "reward": reward["mean"],
                    "reward_low": reward["low"],
                    "reward_high": reward["high"],
                }
                wanted |= {
                    "strict": strict["mean"],
                    "strict_low": strict["low"],
                    "skill": summary["skill"],
                }
                wanted |= {
                    "nonzero": summary["nonzero_rate"],
                    "truncated": summary["truncated"],
                    "n": 59,
                }
                wanted |= {"tokens": summary["mean_tokens"], "failures": summary["failures"]}
                assert {name: float(row[name]) for name in wanted} == wanted
                assert summary["n"] == 59


def test_floor_and_ceiling_stand_beside_every_split(view):
    for split in ("val", "test"):
        made = build_tables.stages_table(view, [split])
        names = [row.cells[0] for row in made.rows if row.style == "reference"]
        assert names == [
            "Baseline: blank",
            "Baseline: shuffled-gold",
            "Baseline: constant (floor)",
            "Oracle (ceiling)",
        ]


def test_the_reward_is_named_after_the_reading_that_it_is(view):
    titles = [column.title for column in build_tables.stages_table(view, ["test"]).columns]
    assert titles[3:5] == ["Reward (lenient)", "Strict"]


def test_differences_equal_compare(view):
    written = by_name((view.run.folder / "tables" / "differences.csv").read_text(encoding="utf-8"))
    assert len(written) == 2 * 2 * 3
    (row,) = [
        r
        for r in written
        if (r["stages"], r["split"], r["mode"]) == ("SFT → GRPO", "test", "greedy")
    ]
    found = compare(
        *(view.evaluations[EvaluationKey(stage, "test", "greedy")] for stage in ("sft", "rl"))
    )
    assert float(row["difference"]) == found.difference.mean
    assert float(row["difference_low"]) == found.difference.low
    assert float(row["p"]) == found.p_value
    assert [int(row[name]) for name in ("n", "wins", "losses", "ties")] == [
        59,
        found.wins,
        found.losses,
        found.ties,
    ]


def test_parts_only_count_examples_where_they_were_computed(view):
    written = by_name((view.run.folder / "tables" / "parts.csv").read_text(encoding="utf-8"))
    (row,) = [r for r in written if (r["part"], r["split"]) == ("numbers", "test")]
    rows = view.evaluations[EvaluationKey("rl", "test", "greedy")].rows
    computed = [row.parts["numbers"] for row in rows if row.parts["numbers"] is not None]
    assert int(row["n"]) == len(computed) < 59
    assert float(row["after"]) == pytest.approx(sum(computed) / len(computed))


def test_parse_modes_count_what_strict_parsing_loses(view):
    made = build_tables.parse_modes_table(view)
    totals = {row.cells[1]: row.cells for row in made.rows if row.cells[0] == "all answers"}
    for stage, name in (("sft", "SFT"), ("rl", "GRPO")):
        rows = view.evaluations[EvaluationKey(stage, "test", "greedy")].rows
        lost = [row for row in rows if row.readings["strict"] == 0 < row.readings["lenient"]]
        right = [
            row for row in lost if row.parts["fields"] == 1 and row.parts["numbers"] in (None, 1)
        ]
        assert totals[name][6:] == (len(lost), len(right))
        assert (
            sum(row.cells[2] for row in made.rows if row.cells[1] == name and row.style == "") == 59
        )
    assert totals["SFT"][6] > totals["GRPO"][6] > 0
    assert 0 < totals["SFT"][7] < totals["SFT"][6]


def made_row(reward: float, strict: float, lenient: float, **parts: float | None) -> Judged:
    readings = {"strict": strict, "lenient": lenient}
    return Judged(
        id="x",
        stratum="",
        completion="",
        reward=reward,
        parts=parts,
        readings=readings,
        how="fence",
    )


@pytest.mark.parametrize(
    ("row", "right"),
    [
        # a fence around it takes nothing from its content
        (made_row(0.9, 0.0, 0.9, alone=0.0, fact=1.0, other=None), 1),
        (made_row(0.9, 0.0, 0.9, alone=0.0, fact=0.9), 0),
        (made_row(0.9, 0.0, 0.9, fact=0.9, exact=1.0), 1),  # the task's own word
        (made_row(0.9, 0.0, 0.9, fact=1.0, exact=0.0), 0),
        (made_row(1.0, 0.0, 1.0), 1),
        (made_row(0.9, 0.0, 0.9), 0),
        # the reward is the strict reading, and so are the parts
        (made_row(0.0, 0.0, 0.9, fact=0.0), None),
    ],
)
def test_a_right_answer_that_strict_parsing_loses_is_right_in_its_content(row, right):
    counted = count_rescued(
        [row, made_row(1.0, 1.0, 1.0, fact=1.0), made_row(0.0, 0.0, 0.0, fact=0.0)], ("alone",)
    )
    assert (counted.n, counted.earning, counted.right) == (3, 1, right)


def test_the_curve_has_every_evaluation_inside_training(view):
    made = build_tables.curve_table(view)
    assert [row.cells[0] for row in made.rows] == [0, 10, 20, 30, 40, 50, 60] * 2
    assert {row.cells[3] for row in made.rows} == {24}


def test_every_table_is_written_as_csv_and_latex(view):
    names = {path.name for path in (view.run.folder / "tables").iterdir()}
    tables = {"results", "differences", "parts", "strata", "parse-modes", "curve", "time"}
    assert names == {f"{name}.{kind}" for name in tables for kind in ("csv", "tex")}


def test_tables_of_an_empty_run_have_their_headings(tmp_path):
    from tests.reports.building import recipe

    with Run.start(recipe(), tmp_path / "run") as run:
        tables = build_tables.all_tables(RunView(run.record()))
    assert [len(made.rows) for made in tables] == [0] * 7
    for made in tables:
        assert len(rows_of(made.to_csv())) == 1
        assert "\\bottomrule" in made.to_latex()


def test_a_mean_without_an_interval_stands_alone():
    assert format_interval(t_interval([0.25])) == "0.250"
    assert format_interval(t_interval([0.25]), sign=True) == "+0.250"
    assert format_interval(t_interval([0.2, 0.3])).startswith("0.250 [")


def test_an_oracle_that_earns_everything_has_no_interval(view):
    (oracle,) = [
        row
        for row in build_tables.stages_table(view, ["test"]).rows
        if row.cells[0] == "Oracle (ceiling)"
    ]
    assert [format_interval(one) for one in oracle.cells if isinstance(one, Interval)] == [
        "1.000"
    ] * 2
    assert oracle_interval(Interval(0.9, 0.8, 1.0, 9)).low == 0.8
    baseline = view.evaluations[EvaluationKey("reference", "test", "blank")]
    assert view.reward(baseline).high > 0
