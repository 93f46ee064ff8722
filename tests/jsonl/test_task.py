"""The task jsonl: rows become examples, functions become rubrics, and what is wrong with either is
said."""

import datetime
import json
import math
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from plumbline.api import HOSTILE, check_task
from plumbline.checks.audit.trial import check_reward
from plumbline.errors import DataError, IncomparableError, RecipeError
from plumbline.evaluation.comparison import compare
from plumbline.evaluation.evaluate import (
    ORACLE,
    evaluate_completions,
    evaluate_reference,
    evaluate_references,
)
from plumbline.evaluation.score_completions import evaluate_file
from plumbline.evaluation.summary import summarise, summarise_with_references
from plumbline.records import Evaluation, Judged
from plumbline.reports.evaluation_output import detail_tables
from plumbline.tasks import open_task
from plumbline.tasks.jsonl.files import Foreign, _as_json
from plumbline.tasks.task import export
from tests.jsonl.conftest import Workplace, sums


def test_the_law_of_a_task(workplace):
    task = workplace.open(gold="answer")
    for split in task.splits:
        laws = check_task(task, split)
        assert laws.oracle == 1.0
        assert laws.raised == ()
        assert set(laws.baselines) == {"blank", "echo", "constant", "shuffled-gold", "every-gold"}
        assert max(laws.baselines.values()) < 1
    assert task.users_task is task


def test_an_answer_that_the_function_breaks_on_is_a_counted_failure_and_never_a_reward_of_0(
    workplace,
):
    workplace.functions(
        "def score(completion, answer):\n    return float(completion) == float(answer)\n"
    )
    task = workplace.open(gold="answer")
    examples = task.examples("train")
    evaluation = evaluate_completions(
        task, examples, ["word", *(e.gold for e in examples[1:])], source="x", split="train"
    )
    assert [(row.id, "ValueError" in row.failure) for row in evaluation.unjudged] == [
        (examples[0].id, True)
    ]
    assert evaluation.mean_reward == 1.0


def test_every_hostile_text_is_judged(workplace):
    example = (task := workplace.open(gold="answer")).examples("val")[0]
    assert [task.judge(example, text)[1].total for text in HOSTILE] == [0.0] * len(HOSTILE)


# -- rows ------------------------------------------------------------------------------------------


def test_shares_of_one_file_are_disjoint_exact_and_do_not_depend_on_the_order(workplace):
    def ids(**options):
        task = workplace.open(gold="answer", **options)
        return {
            split: {e.messages[-1]["content"] for e in task.examples(split)}
            for split in task.splits
        }

    first = ids(val=0.25, test=0.1)
    assert [len(first[split]) for split in ("train", "val", "test")] == [26, 10, 4]
    assert len(set.union(*first.values())) == 40
    workplace.rows(sums()[::-1])
    assert ids(val=0.25, test=0.1) == first
    assert ids(val=0.25, test=0.1, seed=1) != first


def test_equal_prompts_stay_together_and_are_counted(workplace):
    workplace.rows(sums() + sums())
    task = workplace.open(gold="answer", val=0.25)
    prompts = [{e.fingerprint() for e in task.examples(split)} for split in task.splits]
    assert not prompts[0] & prompts[1]
    assert not prompts[0] & prompts[2]
    notes = task.describe_before_run(quick=False)
    assert any(re.match(r"26 of 52 rows\b.* train\b", note) for note in notes)


def test_files_of_their_own(workplace):
    workplace.rows([{**row, "prompt": f"val {row['prompt']}"} for row in sums(3)], "val.jsonl")
    workplace.rows(
        [{**row, "prompt": f"test {row['prompt']}", "id": n} for n, row in enumerate(sums(2))],
        "test.jsonl",
    )
    files = {"val": "val.jsonl", "test": "test.jsonl"}
    task = workplace.open(gold="answer", stratum="kind", cluster="kind", system="Count.", **files)
    assert [len(task.examples(split)) for split in task.splits] == [40, 3, 2]
    assert [e.id for e in task.examples("val")] == ["val-1", "val-2", "val-3"]
    assert [e.id for e in task.examples("test")] == ["0", "1"]
    one = task.examples("train")[4]
    assert (one.id, one.stratum, one.cluster, one.gold) == ("row-5", "odd", "odd", "9")
    assert one.messages == [
        {"role": "system", "content": "Count."},
        {"role": "user", "content": "4 + 5 = ?"},
    ]
    assert one.reference == sums()[4]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"question": "a"}], {}, r"rows\.jsonl:1: .* column 'prompt' \(.* question\)"),
        ([{"prompt": "a"}], {"gold": "answer"}, r"rows\.jsonl:1: .* column 'answer' "),
        (
            sums(),
            {"gold": "#### {solution}"},
            r":1: .* 'solution' \(.* answer, kind\)",
        ),
        (sums(), {"gold": "#### {answer.real}"}, r":1: .* column 'answer\.real' "),
        (sums(), {"prompt": "{prompt}\n\n{choices:options}"}, ":1: .* column 'choices' "),
        (
            sums(),
            {"prompt": "{prompt}\n\n{answer:options}"},
            ":1 .*: '1' .* list of choices",
        ),
        (
            [{"prompt": "a", "answer": 26}],
            {"gold": "{answer:letter}"},
            "answer is '26', .* index",
        ),
        (
            [{"prompt": "a", "answer": 3, "c": ["x"]}],
            {"gold": "{c:of answer}"},
            ": c .* choice ''",
        ),
        ([{"prompt": "a", "answer": ""}], {"gold": "answer"}, ':1: .*gold answer is ""'),
        ([{"prompt": "a", "answer": ["x"]}], {"gold": "answer"}, r':1: .*gold answer is \["x"\]'),
        ([{"prompt": " "}], {}, ':1: prompt is " "\n'),
        ([{"prompt": [{"role": "robot", "content": "x"}]}], {}, ':1: prompt .* {"role": "robot", '),
        (
            [{"prompt": [{"role": "user", "content": "x"}, {"role": "tool"}]}],
            {},
            ':1: prompt .* {"role": "tool"}\n',
        ),
        (
            [{"prompt": [{"role": "system", "content": "x"}]}],
            {},
            r":1: .*prompt .* end .* user\b",
        ),
        (
            [{"prompt": [{"role": "assistant", "content": "x"}]}],
            {},
            r":1: .*prompt .* end .* user\b",
        ),
        (
            [{"prompt": "a", "id": 1}, {"prompt": "b", "id": "1"}],
            {},
            r"rows\.jsonl:2: .* id 1 .* rows\.jsonl:1 ",
        ),
        ([{"prompt": "a", "id": None}], {}, r"rows\.jsonl:1: .* id is null"),
        (
            [{"prompt": "a", "score": math.nan}],
            {},
            r"rows\.jsonl:1 .*: Out of range",
        ),
        ([{"prompt": "a\ud800"}], {}, r"rows\.jsonl:1 .*surrogates \(\\ud800 "),
        ([{"prompt": "a"}, {"prompt": "b"}], {}, r"rows\.jsonl .* 2 prompts, .* 2 "),
        ([{"prompt": "a"}, 3], {}, r"rows\.jsonl:2: .* not int"),
        ([], {}, "rows.jsonl has no rows"),
        (
            [{"prompt": "b"}, {"prompt": "a"}],
            {"val": "val.jsonl"},
            r"val\.jsonl:1 \(val\) .* rows\.jsonl:2 \(train\)",
        ),
        ([{"prompt": "a"}], {"val": "absent.jsonl"}, "absent.jsonl does not exist"),
        (
            [
                {
                    "prompt": [
                        {"role": "user", "content": "q"},
                        {"role": "assistant", "content": "a"},
                    ]
                },
                {"prompt": "b"},
            ],
            {},
            r"1 of 2 rows .* rows\.jsonl:2, ",
        ),
    ],
)
def test_malformed_rows_are_named(workplace, rows, options, message):
    workplace.rows(rows)
    workplace.rows([{"prompt": "a"}], "val.jsonl")
    workplace.functions("def score(completion):\n    return 0\n")
    with pytest.raises(DataError, match=message):
        workplace.open(**options).examples("train")


def test_rows_without_a_gold_answer_are_in_no_split_counted_and_given_to_the_audit(workplace):
    def rows(**held):
        return [{**row, **held} if n in {3, 9, 20} else row for n, row in enumerate(sums())]

    bare = [{"prompt": row["prompt"]} if n in {3, 9, 20} else row for n, row in enumerate(sums())]
    nested = [
        {"prompt": f"{n}?", "answer": {"text": ["x"] * (n not in {3, 9, 20})}} for n in range(40)
    ]
    turns = [[{"role": "user", "content": row["prompt"]}] for row in sums()]
    chats = [
        [*turn, {"role": "assistant", "content": "" if n in {9, 20} else "x"}]
        for n, turn in enumerate(turns)
    ]
    chats[3] = turns[3]
    for given, options in [
        (rows(answer=None), {"gold": "answer"}),
        (rows(answer=""), {"gold": "#### {answer}"}),
        (rows(answer=["x"]), {"gold": "answer"}),
        (nested, {"gold": "{answer.text.0}"}),
        (bare, {"gold": "answer"}),
        ([{"prompt": chat, "answer": "x"} for chat in chats], {}),
    ]:
        workplace.rows(given)
        task = workplace.open(**options)
        assert sum(len(task.examples(split)) for split in task.splits) == 37
        assert all(one.gold for split in task.splits for one in task.examples(split))
        assert [one.id for one in task.rows_without_gold] == ["row-4", "row-10", "row-21"]
        assert re.match(r"3 of 40 rows .*gold.* rows\.jsonl:4\b", task.notes[0])


NOON = datetime.datetime(2020, 2, 3, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("value", "held"),
    [
        (NOON.date(), "2020-02-03"),
        (NOON, "2020-02-03T12:00:00+00:00"),
        (NOON.time(), "12:00:00"),
        (Decimal("1.50"), "1.50"),
        ({"a": [NOON.date(), {"b": Decimal("1E+60")}]}, {"a": ["2020-02-03", {"b": "1E+60"}]}),
        (2**64 - 1, 2**64 - 1),
        (np.array([1.5, 2.0]), [1.5, 2.0]),
        (b"x", Foreign("bytes")),
        ({"bytes": b"x"}, Foreign("bytes")),
        (math.nan, Foreign("a number that is not finite")),
        ([math.inf], Foreign("a number that is not finite")),
        ({NOON: 1}, Foreign("keys must be str, int, float, bool or None, not datetime.datetime")),
    ],
)
def test_what_json_has_no_form_for_is_a_text_or_left_out_where_it_is_not_used(
    workplace, monkeypatch, value, held
):
    workplace.functions(
        "def score(completion, answer):\n    return completion == answer\n"
        "def needs(completion, when):\n    return 1.0\n"
    )
    assert _as_json(value) == held
    rows = [(number, {**row, "when": _as_json(value)}) for number, row in enumerate(sums(), 1)]
    monkeypatch.setattr("plumbline.tasks.jsonl.rows.read_rows", lambda _: iter(rows))
    task, foreign = workplace.open(gold="answer"), isinstance(held, Foreign)
    (example, *_) = task.examples("train")
    assert ("when" in example.reference) == (not foreign)
    assert task.judge(example, example.gold)[1].total == 1
    assert any("when" in note for note in task.describe_before_run(quick=False)) == foreign
    if isinstance(held, str):
        assert workplace.open("needs", gold="at {when}").examples("train")[0].gold == f"at {held}"
    for score, used in (
        ("needs", {}),
        *(("score", {key: "when"}) for key in ("prompt", "gold", "stratum", "cluster")),
    ):
        if foreign:
            with pytest.raises(DataError, match=f"column when holds {held.kind[:20]}"):
                workplace.open(score, **used).examples("train")


def test_columns_of_parquet_that_nobody_uses_need_not_be_json(workplace):
    pytest.importorskip("datasets", reason="pip install '.[datasets]'")
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    more = {"day": NOON, "cost": Decimal("1.50"), "image": b"x", "odd": math.nan}
    parquet.write_table(pa.Table.from_pylist([{**row, **more} for row in sums()]), "rows.parquet")
    task = workplace.open(train="rows.parquet", gold="{answer} on {day} for {cost}")
    (example, *_) = task.examples("train")
    assert set(example.reference) == {*sums()[0], "day", "cost"}
    assert example.gold == f"{example.reference['answer']} on 2020-02-03T12:00:00+00:00 for 1.50"


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("answer", "7"),
        ("#### {answer}", "#### 7"),
        ("\\boxed{{{answer}}} {kind}", "\\boxed{7} odd"),
        ("messages", "1!"),
        ("<answer>{messages}</answer>", "<answer>1!</answer>"),
        ("{odd}", "as it is"),
    ],
)
def test_a_gold_answer_is_a_column_or_a_template_of_columns(workplace, gold, text):
    more = {"messages": [{"role": "assistant", "content": "1!"}], "{odd}": "as it is", "odd": "3"}
    workplace.rows([{**row, **more, "answer": "7"} for row in sums()])
    assert {example.gold for example in workplace.open(gold=gold).examples("train")} == {text}


def test_messages_that_end_with_an_answer_hold_the_gold(workplace):
    def said(**by_role):
        return [{"role": role, "content": text} for role, text in by_role.items()]

    workplace.rows(
        [{"chat": said(system="Be brief.", user=f"{n}?", assistant=f"{n}!")} for n in range(20)]
    )
    workplace.functions(
        "def score(prompts, completions, **columns):\n"
        "    assert all(p[-1]['role'] == 'user' for p in prompts)\n"
        "    asked = [p[-1]['content'] for p in prompts]\n"
        "    return [float(c[0]['content'] == text.replace('?', '!')) for text, c in zip(asked, "
        "completions)]\n"
    )
    task = workplace.open(prompt="chat", system="not this one")
    assert check_task(task, "train").oracle == 1.0
    assert [m["role"] for m in task.examples("train")[0].messages] == ["system", "user"]
    assert task.examples("train")[0].messages[0]["content"] == "Be brief."


# -- gold answers or none --------------------------------------------------------------------------


def test_without_gold_answers_there_is_no_ceiling_and_that_is_said(workplace, tmp_path):
    workplace.functions("def score(completion):\n    return min(1.0, len(completion) / 100)\n")
    task = workplace.open()
    examples = task.examples("val")
    assert set(task.baselines) == {"blank", "echo"}
    beside = evaluate_references(task, examples, "val")
    assert set(beside) == {"blank", "echo"}
    summary = summarise(beside["echo"], beside)
    assert summary["ceiling"] is None
    assert summary["skill"] is None
    assert summary["floor"] == beside["echo"].mean_reward > 0
    assert "no gold answers" in _rendered(summarise_with_references(beside["echo"], beside))
    assert "no-oracle" in {one.check for one in check_reward(task)}
    with pytest.raises(DataError, match=examples[0].id):
        evaluate_reference(task, examples, source=ORACLE, split="val")
    with pytest.raises(DataError, match=examples[0].id):
        task.demonstration(examples[0], 0)
    assert check_task(task, "val").oracle is None
    export(task, tmp_path / "out")
    row = json.loads((tmp_path / "out" / "val.jsonl").read_text().splitlines()[0])
    assert [m["role"] for m in row["messages"]] == ["user"]


def test_what_has_one_part_and_one_way_to_read_it_is_one_table():
    row = Judged(
        id="a", stratum="", completion="x", reward=1.0, parts={"p": 1.0}, readings={}, how="text"
    )
    one = Evaluation(
        source="m", task="t", split="test", rubric="r/1", sampling={}, seed=0, rows=(row,)
    )
    assert "read as" not in _rendered(summarise_with_references(one, {}))
    other = replace(one, rows=(row, replace(row, id="b", how="fence")))
    assert "read as" in _rendered(summarise_with_references(other, {}))


def _rendered(summary):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(detail_tables(summary))
    return captured.get()


# -- scoring functions -----------------------------------------------------------------------------

FUNCTIONS = '''
import asyncio, functools, math, sys
from fractions import Fraction
import numpy

def number(completion, answer): return completion == answer
def array(completion, answer): return numpy.float32(completion == answer)
def parts(completion, answer): return {"right": completion == answer, "brief": 0.5, "said": None}
def signed(completion, answer): return 1 if completion == answer else -1
def brief(completion): return float(len(completion) < 3)
def trl(prompts, completions, answer, kind, **kwargs):
    assert {"prompt", "completion", "completion_ids"}.isdisjoint(kwargs), kwargs
    assert prompts == ["0 + 1 = ?"] * len(completions) and kind == ["odd"] * len(completions)
    return [float(c == a) if c != "no" else None for c, a in zip(completions, answer)]
def picky(completion, prompt, answer="?", nothing=3):
    return float(completion == prompt and answer == "1" and nothing == 3)
def two(completion, answer): return 2.0 * (completion == answer)
def two_trl(completions, answer, **columns): return [2.0 * (c == a) for c, a in zip(completions, answer)]
def spoils(completions, known, **columns): return [float(c == k.pop("is")) for c, k in zip(completions, known)]
def needs(completion, solution): return 0
def names(text, row): return 0
def both(completion, completions): return 0
def only(**columns): return 0
def trainer(completions, trainer_state, **columns): return [0 for _ in completions]
async def laters(completions, answer, **columns):
    await asyncio.sleep(0)
    return [c == a for c, a in zip(completions, answer)]
async def later(completion, answer): return completion == answer
def fraction(completion, answer): return Fraction(completion == answer)
def tensor(completions, answer, **columns):
    right = numpy.array([[c == a] for c, a in zip(completions, answer)], numpy.float32)
    completions.clear(), answer.append("lost")
    return right
def twice(completion, answer, times): return times * (completion == answer)
bound = functools.partial(twice, times=1)
def wide(completion): return numpy.zeros(3)
def huge(completion): return 10**400
def text(completion): return "1.0"
def silent(completion): return None
def unordered(completions, **columns): return {1.0}
def unsized(completions, **columns): return numpy.float32(1)
def several(completions, **columns): return [1, 1]
def infinite(completion): return math.inf
def rounded(completion): return numpy.float32(1) + numpy.float32(1e-6) / 2
def leaves(completion): sys.exit(3)
def cancelled(completion): raise asyncio.CancelledError
def scalar(completions, **columns): return 1.0
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source == "sums" and extra_info == {"index": 1}
    right = solution_str == ground_truth
    return {"score": 2.0 * right - 1, "acc": right, "pred": solution_str}
def plain_score(solution_str, ground_truth, method="strict", **kwargs):
    assert method == "strict" and kwargs.keys() == {"data_source", "extra_info"}, kwargs
    return float(solution_str == ground_truth)
async def async_score(data_source, solution_str, ground_truth, extra_info): return solution_str == ground_truth
def no_score(solution_str): return {"acc": 1.0}
class Judge:
    def __call__(self, completion, answer): return float(completion == answer)
judge = Judge()
'''  # fmt: skip


@pytest.fixture
def functions(workplace):
    rows = [sums(1)[0]] + [{**row, "prompt": f"{n}?"} for n, row in enumerate(sums(9))]
    workplace.rows([{**row, "known": {"is": row["answer"]}} for row in rows])
    workplace.functions(FUNCTIONS)
    return workplace


def first(functions, *score, **options):
    options = {"val": 0.3, "test": 0.3, "seed": 0, **options}
    task = functions.open(*score, **options)
    example = next(e for split in task.splits for e in task.examples(split) if e.id == "row-1")
    return task, example


def paid(task, example, *texts):
    return [task.judge(example, text)[1].total for text in texts]


@pytest.mark.parametrize(
    "score", ["number", "array", "trl", "judge", "bound", "later", "laters", "fraction", "tensor"]
)
def test_a_number_is_a_reward(functions, score):
    task, example = first(functions, score)
    assert paid(task, example, "1", "2") == [1.0, 0.0]
    assert task.judge(example, "1")[1].parts == {score: 1.0}


def test_named_parts_have_weights_and_none_is_left_out(functions):
    task, example = first(functions, "parts", weights={"right": 3, "brief": 1, "said": 4})
    _, score = task.judge(example, "1")
    assert score.total == pytest.approx((3 * 1 + 1 * 0.5) / 4)
    assert score.parts == {"right": 1.0, "brief": 0.5, "said": None}


def test_several_functions_are_parts(functions):
    task, example = first(functions, ["trl", "brief"], weights={"trl": 3, "brief": 1})
    assert paid(task, example, "1", "22", "none") == [1.0, 0.25, 0.0]
    assert task.judge(example, "no")[1].parts == {"trl": None, "brief": 1.0}
    together = task.judge_group(example, ["1", "22", "none", "no"])
    assert [score.total for _, score in together] == [1.0, 0.25, 0.0, 1.0]


def test_a_range_becomes_0_to_1(functions):
    task, example = first(functions, "signed", range=[-1, 1])
    assert paid(task, example, "1", "2") == [1.0, 0.0]
    task, example = first(functions, ["signed", "brief"], range={"signed": [-3, 1]})
    assert task.judge(example, "2")[1].parts == {"signed": 0.5, "brief": 1.0}
    task, example = first(functions, "signed")
    with pytest.raises(DataError, match=r"signed .* -1, .* \[0, 1\]") as error:
        task.judge(example, "2")
    assert "task.options.range" in error.value.fix


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("score", ["compute_score", "plain_score", "async_score"])
def test_verls_functions_score_as_they_do_there(functions, score, nested):
    truth = (
        {"reward_model": {"style": "rule", "ground_truth": "1"}}
        if nested
        else {"ground_truth": "1"}
    )
    row = {"data_source": "sums", "extra_info": {"index": 1}, **truth}
    functions.rows([{"prompt": [{"role": "user", "content": f"{n}?"}], **row} for n in range(9)])
    options = {"range": [-1, 1]} if score == "compute_score" else {}
    task, example = first(functions, score, gold="ground_truth", **options)
    assert paid(task, example, "1", "2") == [1.0, 0.0]
    assert example.gold == "1"


def test_a_file_and_a_function_name_a_scoring_function(functions):
    place = functions.folder / "rewards"
    place.mkdir()
    (place / f"{functions.module}.py").write_text(
        "def score(completion, answer): return completion == answer\n"
    )
    task = open_task(
        "jsonl", {"train": "rows.jsonl", "score": f"rewards/{functions.module}.py:score"}, Path()
    )
    example = task.examples("train")[0]
    assert task.judge(example, example.reference["answer"])[1].total == 1.0


@pytest.mark.parametrize(
    ("weights", "totals"),
    [
        ({"trl": 1, "brief": 0}, [1.0, 0.0, 0.0]),
        ({"trl": 1, "brief": -1}, [0.5, 0.5, 0.0]),
        ([-1, -3], [0.0, 1.0, 0.25]),
    ],
)
def test_a_weight_of_0_pays_nothing_and_a_negative_one_pays_for_low_numbers(
    functions, weights, totals
):
    task, example = first(functions, ["trl", "brief"], weights=weights)
    assert paid(task, example, "1", "111", "2") == totals


def test_averages_of_ours_do_not_depend_on_the_width_of_a_range_and_sums_of_trls_do(functions):
    task, example = first(functions, ["two", "brief"], range={"two": [0, 2], "brief": [0, 1]})
    assert task.judge(example, "1")[1].total == 1.0
    assert task.judge(example, "22")[1].total == 0.5
    task, example = first(
        functions, ["two_trl", "brief"], range={"two_trl": [0, 2], "brief": [0, 1]}
    )
    assert task.judge(example, "22")[1].total == pytest.approx(1 / 3)


def test_what_a_function_does_to_its_arguments_stays_there(functions):
    """And parameters get what they are named after."""
    task, example = first(functions, "picky")
    assert task.judge(example, "0 + 1 = ?")[1].total == 1.0
    task, example = first(functions, ["spoils"])
    assert [task.judge(example, "1")[1].total for _ in range(2)] == [1.0, 1.0]
    assert [score.total for _, score in task.judge_group(example, ["1", "1", "2"])] == [
        1.0,
        1.0,
        0.0,
    ]


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ("names", r":names .* \(text, row\), "),
        ("both", r":both .* \(completion, completions\), "),
        ("only", r":only .* \(\), "),
        ("trainer", "takes trainer_state, .* TRL's"),
        ("absent", "has no absent"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_when_it_is_opened(functions, score, message):
    with pytest.raises(RecipeError, match=message):
        functions.open(score)
    with pytest.raises(
        DataError,
        match=r"rows.jsonl:1: .* solution",
    ):
        functions.open("needs").examples("train")


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ("wide", "^wide .* ndarray .* number"),
        ("huge", "^huge .* int 100+, .* number"),
        ("text", r"^text .* str '1\.0', .* number"),
        ("silent", "^no function .* reward"),
        ("scalar", r":scalar .* float 1\.0 .* 1 completions"),
        ("unordered", r":unordered .* set {1\.0} .* 1 completions"),
        ("unsized", r":unsized .* float32 .* 1 completions"),
        ("several", r":several .* list \[1, 1\] .* 1 completions"),
        ("infinite", r"infinite .* inf, .* \[0, 1\] \(.*:infinite\)"),
        ("no_score", r":no_score .* dict {'acc': 1\.0}, .* score\n"),
        ("parts", r"right, brief, said (.|\n)*task\.options\.weights: "),
        (["parts", "brief"], r"two .* part brief\b"),
    ],
)
def test_what_is_returned_must_be_a_reward(functions, score, message):
    weights = None if isinstance(score, str) else {"right": 1, "brief": 1, "said": 1}
    task, example = first(functions, score, weights=weights)
    with pytest.raises(DataError, match=message):
        task.judge(example, "1")


def test_rounding_is_no_number_outside_and_an_exit_is_a_failure(functions):
    task, example = first(functions, "rounded")
    assert task.judge(example, "1")[1].total == 1.0
    for name, said in (("leaves", r"SystemExit\(3\)"), ("cancelled", "CancelledError")):
        task, example = first(functions, name)
        with pytest.raises(RuntimeError, match=f":{name} raised {said}"):
            task.judge(example, "1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"promt": "x"}, r"unknown key task\.options\.promt .* prompt\?\)"),
        ({"train": None}, "train: Field required"),
        ({"val": 1.5}, r"options\.val: .* 0 .* 1, not 1\.5\n"),
        ({"val": 0.5, "test": 0.5}, "options: val .* test .* train\n"),
        ({"val": True}, "val is true"),
        ({"range": [1, 0]}, "options: range .* 1 to 0\n"),
        ({"range": {"nothing": [0, 1]}}, "options: range .* nothing; .* score\n"),
        ({"weights": {"score": 0}}, "weights are all 0"),
        ({"weights": [1, 2]}, r"options\.weights: .* 2 for 1 "),
        ({"weights": {"score": "much"}}, r"options\.weights\.score: .* valid number"),
        ({"weights": {}}, r"options\.weights: .* 1 item\b"),
        ({"judges": -1}, r"options\.judges: .* 0\n"),
        ({"gold": "#### {answer:.2f}"}, r"options\.gold: '#### {answer:\.2f}' .*template; "),
        ({"prompt": "{question:lettered}"}, r"options\.prompt: '{question:lettered}' .*template; "),
        ({"gold": "{answer!r}"}, r"options\.gold: '{answer!r}' .*template; "),
        ({"gold": "#### {}"}, r"options\.gold: '#### {}' .*template; "),
        ({"gold": "{{answer}}"}, r"options\.gold: '{{answer}}' .*template; "),
        ({"gold": "#### {answer"}, r"options\.gold: '#### {answer' .*template: expected '}'"),
        ({"score": "no_colon"}, r"options\.score: .* module:function\b"),
        ({"score": ["a:f", "b:f"]}, r"options\.score: two .* \(f, f\)"),
        ({"score": []}, r"options\.score: .* module:function\b"),
    ],
)
def test_wrong_options(workplace, options, message):
    values = {
        key: value for key, value in {**workplace.options(), **options}.items() if value is not None
    }
    with pytest.raises(RecipeError, match=message) as error:
        open_task("jsonl", values, Path())
    assert "train and score" in error.value.fix


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("not_there:score", "No module named 'not_there'"),
        ("os.path.:score", r"^os\.path\.:score .* function\n"),
        ("math:pi", "^math:pi .* 3.14159.* callable"),
        (
            "broken_scoring:score",
            r"broken_scoring:score: .* ZeroDivisionError: .*broken_scoring\.py, line 1\)",
        ),
    ],
)
def test_a_function_that_cannot_be_imported(workplace, name, message):
    (workplace.folder / "broken_scoring.py").write_text("x = 1 / 0\n")
    with pytest.raises(RecipeError, match=message):
        open_task("jsonl", {"train": "rows.jsonl", "score": name}, Path())


# -- identity --------------------------------------------------------------------------------------


def test_the_rubric_changes_with_the_source_and_with_what_decides_a_score(workplace):
    base = workplace.open().rubric
    assert workplace.open().rubric == base
    assert workplace.open(gold="answer", judges=2, val=0.3).rubric == base
    assert workplace.open(range=[0, 2]).rubric != base
    assert workplace.open(weights={"score": 2}).rubric != base
    source = (workplace.folder / f"{workplace.module}.py").read_text()
    rubrics = []
    for text in (
        source,
        source.replace("completion.strip()", "completion.strip().lower()"),
        f"{source}\nHELPER = 1\n",
    ):
        other = Workplace(workplace.folder)
        other.functions(text)
        rubrics.append(other.open().rubric.replace(other.module, workplace.module))
    assert rubrics[0].split(":")[-1] == base.split(":")[-1]
    assert len({rubric.split(":")[-1] for rubric in rubrics}) == 3
    assert f"{workplace.module}:score/1+" in base


def test_evaluations_under_two_scoring_functions_are_not_compared(workplace):
    strict, kind = (workplace.open(gold="answer", range=pair) for pair in ([0, 1], [0, 2]))
    before, after = (
        evaluate_reference(t, t.examples("val"), source="blank", split="val")
        for t in (strict, kind)
    )
    with pytest.raises(IncomparableError, match=re.escape(after.rubric)):
        compare(before, after)


def test_answers_from_elsewhere_are_scored(workplace):
    task = workplace.open(gold="answer")
    some = task.examples("test")
    workplace.rows(
        [{"id": e.id, "completion": e.gold if n else "?"} for n, e in enumerate(some)],
        "answers.jsonl",
    )
    evaluation, unknown = evaluate_file(workplace.folder / "answers.jsonl", task, ["test"])
    assert unknown == set()
    np.testing.assert_array_equal(evaluation.rewards(), [0.0, 1.0, 1.0, 1.0])
