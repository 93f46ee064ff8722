"""The task strict-json: its laws, what the split test alone has, and what answers earn that are
nearly right."""

import json
from pathlib import Path

import pytest

from plumbline.api import check_task
from plumbline.errors import DataError, RecipeError
from plumbline.records import Example
from plumbline.tasks import silent
from plumbline_answers import short_answers, strict_json
from plumbline_answers.short_answers import open_short_answers
from plumbline_answers.strict_json import has_type, open_strict_json

SPLITS = ("train", "val", "test")
OPENERS = (open_strict_json, open_short_answers)
OBJECT = {"kind": "object", "count": 2, "items": "", "keys": {"name": "string", "age": "integer"}}
ARRAY = {"kind": "array", "count": 3, "items": "integer", "keys": {}}
RECORDS = {
    "kind": "records",
    "count": 2,
    "items": "",
    "keys": {"price": "number", "paid": "boolean"},
}
TAGS = {"kind": "schema", "count": 1, "items": "", "keys": {"tags": "list"}}


def opened(opener=open_strict_json, **options):
    return opener(options, Path("nowhere"), silent)


def judged(asked, text, **options):
    return opened(**options).judge(Example(id="x", messages=[], gold="", reference=asked), text)[1]


# -- both tasks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("reward", ["strict", "slope"])
@pytest.mark.parametrize("split", SPLITS)
def test_the_laws(opener, reward, split):
    laws = check_task(opened(opener, reward=reward), split)
    assert laws.oracle == 1.0
    assert laws.raised == ()
    assert max(laws.baselines.values()) < (0.05 if reward == "strict" else 0.5), laws.baselines


@pytest.mark.parametrize("opener", OPENERS)
def test_splits_share_no_prompt_and_have_their_sizes(opener):
    task = opened(opener, train=400)
    prompts = [{one.messages[-1]["content"] for one in task.examples(split)} for split in SPLITS]
    assert [len(one) for one in prompts] == [400, 120, 240]
    assert len(set.union(*prompts)) == 760
    assert [one.stratum for one in task.examples("test")].count(task.kinds[0]) == 60


@pytest.mark.parametrize("module", [strict_json, short_answers])
def test_whole_wordings_are_held_out_and_test_has_no_other(module, monkeypatch):
    known = module.load_words()
    wordings = known["wordings"]
    assert all(set(one["train"]).isdisjoint(one["test"]) for one in wordings.values())
    ways = [
        ["nth", "longest", "letter"],
        *([way] for way in wordings if way not in {"nth", "longest", "letter"}),
    ]
    assert all(
        sum(len(wordings[way]["test"]) for way in one) >= 2 for one in ways if one[0] in wordings
    )
    marked = {
        way: {part: [f"{part}|{text}" for text in texts] for part, texts in one.items()}
        for way, one in wordings.items()
    }
    monkeypatch.setattr(module, "load_words", lambda: known | {"wordings": marked})
    task = opened(open_short_answers if module is short_answers else open_strict_json)
    for split in SPLITS:
        began = {one.messages[-1]["content"].split("|")[0] for one in task.examples(split)}
        assert began == {"test" if split == "test" else "train"}


@pytest.mark.parametrize("opener", OPENERS)
def test_a_seed_says_all_and_other_options_change_no_example(opener):
    first, again = opened(opener), opened(opener)
    assert all(first.examples(split) == again.examples(split) for split in SPLITS)
    assert opened(opener, seed=1).examples("test") != first.examples("test")
    assert opened(opener, train=100).examples("test") == first.examples("test")
    kind = first.kinds[1]
    alone = opened(opener, kinds=[kind], reward="slope").examples("val")
    assert alone == [one for one in first.examples("val") if one.stratum == kind]


@pytest.mark.parametrize("opener", OPENERS)
def test_what_is_unknown_is_refused(opener):
    with pytest.raises(RecipeError, match=r"task\.options\.kind\b"):
        opened(opener, kind=["object"])
    for wrong in ({"kinds": []}, {"kinds": ["essay"]}, {"reward": "half"}):
        with pytest.raises(RecipeError):
            opened(opener, **wrong)
    with pytest.raises(DataError, match="no split 'dev'"):
        opened(opener).examples("dev")


@pytest.mark.parametrize("opener", OPENERS)
def test_two_rewards_have_two_identities_and_one_reading(opener):
    strict, slope = opened(opener), opened(opener, reward="slope")
    assert strict.rubric != slope.rubric
    for example in strict.examples("val")[:8]:
        for text in (example.gold, f"Sure: {example.gold}", "", "{}"):
            (_, one), (_, other) = strict.judge(example, text), slope.judge(example, text)
            assert one.parts == other.parts
            assert one.total == one.readings["strict"] == other.readings["strict"] <= other.total


# -- strict-json -----------------------------------------------------------------------------------

GOOD = '{"name": "Ada", "age": 9}'
ROWS = '[{"price": 1, "paid": true}, {"price": 2.5, "paid": false}]'
PARTS = ("strict", "json", "container", "count", "keys", "types")
ANSWERS = [
    (OBJECT, GOOD, (1, 1, 1, 1, 1, 1)),
    (OBJECT, f"\n {GOOD}\n\n", (1, 1, 1, 1, 1, 1)),
    (OBJECT, f"```json\n{GOOD}\n```", (0, 0.5, 1, 1, 1, 1)),
    (OBJECT, f"Here it is: {GOOD} I hope [1] helps", (0, 0.5, 1, 1, 1, 1)),
    (OBJECT, '{"name": "Ada", "age": true}', (0, 1, 1, 1, 1, 0.5)),
    (OBJECT, '{"name": "Ada", "age": 9.0}', (0, 1, 1, 1, 1, 0.5)),
    (OBJECT, '{"name": "", "age": "9"}', (0, 1, 1, 1, 1, 0)),
    (OBJECT, '{"name": "Ada", "age": 9, "city": "Oslo"}', (0, 1, 1, 0.5, 2 / 3, 1)),
    (OBJECT, '{"name": "Ada", "Age": 9}', (0, 1, 1, 1, 1 / 3, 0.5)),
    (OBJECT, '{"name": "Ada", "age": 9, "age": 9}', (0, 0, 0, 0, 0, 0)),
    (OBJECT, '{"name": "Ada", "age": NaN}', (0, 0, 0, 0, 0, 0)),
    (OBJECT, "{'name': 'Ada', 'age': 9}", (0, 0, 0, 0, 0, 0)),
    (OBJECT, f"[{GOOD}]", (0, 1, 0, 0, 0, 0)),
    (OBJECT, "{}", (0, 1, 1, 0, 0, 0)),
    (ARRAY, "[1, 2, 3]", (1, 1, 1, 1, None, 1)),
    (ARRAY, "[1, 2, true]", (0, 1, 1, 1, None, 2 / 3)),
    (ARRAY, f"[1, 2, {'9' * 41}]", (0, 0, 0, 0, None, 0)),
    (ARRAY, "[1, 2, 3, 4]", (0, 1, 1, 2 / 3, None, 1)),
    (ARRAY, "[1, 2, 3, 4, 5, 6, 7]", (0, 1, 1, 0, None, 1)),
    (RECORDS, ROWS, (1, 1, 1, 1, 1, 1)),
    (RECORDS, '[{"price": 1, "paid": true}]', (0, 1, 1, 0.5, 1, 0.5)),
    (RECORDS, '[{"price": "1", "paid": 1}, 7]', (0, 1, 1, 1, 0.5, 0)),
    (TAGS, '{"tags": ["new"]}', (1, 1, 1, 1, 1, 1)),
    (TAGS, '{"tags": []}', (0, 1, 1, 1, 1, 0)),
    (TAGS, '{"tags": ["new", ""]}', (0, 1, 1, 1, 1, 0)),
]


@pytest.mark.parametrize(("asked", "text", "expected"), ANSWERS)
def test_parts(asked, text, expected):
    score = judged(asked, text, reward="slope")
    assert [score.parts[name] for name in PARTS] == pytest.approx(expected)
    assert judged(asked, text).total == score.readings["strict"] == expected[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            (GOOD, 1),
            ("3", 1),
            (f"```json\n{GOOD}\n```", 1),
            (f"```\n{GOOD}```", 1),
            ("", 0),
            ("``````", 0),
        ),
        *(
            (f"```json\n{GOOD}\n```\nDone.", 0),
            (f"```\n{GOOD}\n```\n```\n{GOOD}\n```", 0),
            ("[" * 201 + "]" * 201, 0),
        ),
    ],
)
def test_the_reading_parses_takes_all_json_and_one_fence(text, expected):
    assert judged(OBJECT, text).readings["parses"] == expected


def test_a_step_towards_the_answer_never_costs():
    steps = [
        "",
        "no",
        "Well: {}",
        "{}",
        '{"name": 1}',
        '{"name": "Ada"}',
        '{"name": "Ada", "age": "9"}',
        GOOD,
    ]
    totals = [judged(OBJECT, text, reward="slope").total for text in steps]
    assert totals == sorted(totals)
    assert len(set(totals)) == len(totals) - 1


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "9" * 10**6, '{"name": "a\x00"}', '["\ud800"', "[1e999]"],
)
def test_hostile_texts_earn_no_right_answer(text):
    for asked in (OBJECT, ARRAY):
        assert judged(asked, text).total == 0
        assert judged(asked, f"[{'9' * 10**6}]").parts["json"] == 0


def test_gold_answers_hold_sensible_values():
    for example in opened().examples("train"):
        asked, value = example.reference, json.loads(example.gold)
        prompt = example.messages[-1]["content"]
        assert all(key in prompt for key in asked["keys"])
        assert not asked["items"] or all(has_type(one, asked["items"]) for one in value)
