"""The extraction rubric: the law of the task, hand-scored answers, and properties over damaged
answers."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.api import HOSTILE, check_task
from plumbline.errors import RecipeError
from plumbline.tasks import open_task
from plumbline.tasks.rubric import Part, Rubric
from plumbline_commerce.extraction.baselines import (
    facts_only,
    first_sentence,
    opening,
    write_sloppily,
)
from plumbline_commerce.extraction.rubric import RUBRIC, canonicalise_answer, judge
from plumbline_commerce.extraction.schema import CATEGORIES, JSON_SCHEMA, KEYS, SENTIMENTS, fits
from plumbline_commerce.options import Sloppiness
from tests.work import most_work

REVIEW = (
    "Demorou 12 dias a mais,\nveio quebrado e ninguém responde. O vendedor disse que era "
    '"original".'
)
GOLD = {
    "sentiment": "negativo",
    "sentiment_score": 1.5,
    "complaint_category": "entrega_atrasada",
    "delivery_issue": True,
    "product_issue": True,
    "service_issue": True,
    "would_recommend": None,
    "delay_days": 12,
    "churn_risk": 0.9,
    "main_complaint": "Demorou 12 dias a mais",
}


def test_what_an_answer_says_does_not_depend_on_how_it_is_written():
    """What two answers have in common."""
    text = json.dumps(GOLD, ensure_ascii=False)
    other = {**GOLD, "Sentiment": "Negativo"}
    del other["sentiment"]
    assert (
        canonicalise_answer(text)
        == canonicalise_answer(f"```json\n{json.dumps(other)}\n```")
        != frozenset()
    )
    assert (
        len(canonicalise_answer(text) & canonicalise_answer(json.dumps({**GOLD, "delay_days": 3})))
        == len(GOLD) - 1
    )
    assert canonicalise_answer("no object") == frozenset()


def total(answer, reading="lenient", gold=GOLD):
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return judge(gold, REVIEW, text, reading)[1].total


def parts(answer, gold=GOLD):
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return judge(gold, REVIEW, text, "lenient")[1].parts


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_the_law_of_the_task(commerce, split):
    laws = check_task(commerce, split)
    assert laws.oracle == 1.0
    assert laws.raised == ()
    assert laws.baselines["blank"] == laws.baselines["echo"] == 0
    assert laws.baselines["keyword-stuffing"] < 0.2
    assert laws.baselines["shuffled-gold"] < 0.35
    assert laws.baselines["constant"] < 0.45
    assert laws.baselines["facts-only"] < laws.baselines["first-sentence"]
    assert max(laws.baselines.values()) < 0.5, "no baseline comes near the oracle"


@pytest.mark.parametrize("instructions", ["full", "short"])
def test_facts_only_reads_the_delay_that_the_prompt_says_and_not_the_reference(
    instructions, tmp_path
):
    """With keys that leave delay_days out it once took every order for punctual, which made the
    floor too low."""
    answers = []
    for keys in (None, ["sentiment", "complaint_category"]):
        options = {"orders": 600, "extraction": 60, "instructions": instructions, "keys": keys}
        examples = open_task("commerce", options, tmp_path / str(keys), lambda *_: None).examples(
            "train"
        )
        answers.append([json.loads(answer) for answer in facts_only(examples)])
        if keys is None:
            delays = [answer["delay_days"] for answer in answers[0]]
            assert delays == [example.reference["delay_days"] for example in examples]
            assert None in delays
            assert any(delay for delay in delays)
    whole, some = answers
    assert some == [
        {key: answer[key] for key in ("sentiment", "complaint_category")} for answer in whole
    ]


def test_first_sentence_quotes_what_a_span_may_hold_and_says_the_rest_without_reading(commerce):
    examples = commerce.examples("train")
    for example, answer, facts in zip(
        examples, first_sentence(examples), facts_only(examples), strict=True
    ):
        quoting, plain = json.loads(answer), json.loads(facts)
        assert example.reference["review"].startswith(quoting["main_complaint"])
        assert fits("main_complaint", quoting["main_complaint"])
        tone = ("sentiment", "sentiment_score", "churn_risk", "main_complaint")
        assert all(quoting[key] == plain[key] for key in KEYS if key not in tone)
        assert [quoting[key] for key in tone[:3]] == ["negativo", 1.5, 0.8]
    assert opening("Veio quebrado! Não gostei.") == "Veio quebrado!"
    assert opening(" Veio\nquebrado. ") == "Veio"
    assert opening("custou R$ 1.50 e veio, 3.5 kg. Ruim") == "custou R$ 1.50 e veio, 3.5 kg."
    assert opening("  ") is None


def test_a_rubric_that_pays_the_wrong_answer_breaks_the_law(commerce):
    """The negative control of the law: with a gold answer exchanged, the oracle no longer earns
    1."""
    examples = commerce.examples("val")
    _, score = commerce.judge(
        replace(examples[0], reference=examples[1].reference), examples[0].gold
    )
    assert score.total < 1


@pytest.mark.parametrize(
    ("change", "part", "value"),
    [
        ({"sentiment": "positivo"}, "sentiment", 0),
        ({"complaint_category": "nao_entregue"}, "complaint_category", 0),
        ({"service_issue": False}, "issues", 2 / 3),
        ({"delivery_issue": False, "product_issue": False, "service_issue": False}, "issues", 0),
        ({"delay_days": 13}, "delay_days", 0.5),
        ({"delay_days": 14}, "delay_days", 0),
        ({"delay_days": None}, "delay_days", 0),
        ({"sentiment_score": 1.7}, "sentiment_score", 0.6),
        ({"churn_risk": 0.8}, "churn_risk", 0.5),
        ({"would_recommend": False}, "would_recommend", 0),
        ({"main_complaint": "veio quebrado"}, "main_complaint", 0),
        (
            {"main_complaint": "Demorou 12 dias a mais, veio quebrado"},
            "main_complaint",
            2 * 5 / (7 + 5),
        ),
        ({"main_complaint": "demorou doze dias"}, "main_complaint", 0),
        ({"main_complaint": None}, "main_complaint", 0),
    ],
)
def test_one_wrong_value_costs_its_part(change, part, value):
    got = parts({**GOLD, **change})
    assert got[part] == pytest.approx(value)
    assert got["exact"] == (1.0 if part == "churn_risk" else 0.0)
    assert total({**GOLD, **change}) < 1


def test_absent_is_not_null_and_missing_flags_are_wrong():
    fewer = {key: value for key, value in GOLD.items() if key != "would_recommend"}
    assert parts(fewer)["would_recommend"] == 0
    calm = {
        **GOLD,
        "delivery_issue": False,
        "product_issue": False,
        "service_issue": False,
        "main_complaint": None,
    }
    flagless = {key: value for key, value in calm.items() if not key.endswith("_issue")}
    assert parts(calm, gold=calm)["issues"] == 1
    assert parts(flagless, gold=calm)["issues"] == 0


def test_form_takes_away_and_never_pays():
    wrong = {
        **GOLD,
        "sentiment": "positivo",
        "sentiment_score": 4.8,
        "complaint_category": "nenhum",
        "delay_days": 0,
    }
    wrong |= {"delivery_issue": False, "product_issue": False, "service_issue": False}
    wrong |= {"would_recommend": True, "churn_risk": 0.0, "main_complaint": None}
    assert total(wrong) == 0, "perfect JSON with nothing right in it"
    assert total(GOLD) == 1
    fenced = f"```json\n{json.dumps(GOLD, ensure_ascii=False)}\n```"
    assert total(fenced) == pytest.approx(0.9)
    comma = json.dumps(GOLD, ensure_ascii=False).replace("1.5", "1,5")
    assert total(comma) == pytest.approx(0.85)
    invented = {**GOLD, "cliente": "Maria", "loja": "X"}
    assert total(invented) == pytest.approx(1 - 0.1 * 2 / 12)


def test_strict_parsing_scores_a_right_answer_as_nothing():
    """The commerce log's first finding, as a test: `4,5` is correct Portuguese and no JSON."""
    comma = json.dumps(GOLD, ensure_ascii=False).replace("1.5", "1,5")
    outcome, score = judge(GOLD, REVIEW, comma, "lenient")
    assert outcome.how == "decimal_comma"
    assert score.readings["strict"] == 0
    assert score.readings["lenient"] == score.total > 0.8
    assert total(comma, "strict") == 0
    assert total(GOLD, "strict") == 1


def test_a_copied_line_break_is_still_the_literal_span():
    spans = {**GOLD, "main_complaint": "Demorou 12 dias a mais, veio"}
    assert parts(spans)["main_complaint"] > 0.7


@given(
    st.dictionaries(
        st.sampled_from(KEYS),
        st.one_of(
            *(st.none(), st.booleans(), st.integers(-5, 30), st.floats(0, 6), st.text(max_size=12)),
            st.sampled_from([*SENTIMENTS, *CATEGORIES]),
        ),
    ),
    st.sampled_from(KEYS),
)
@settings(max_examples=150, deadline=None)
def test_a_better_answer_never_scores_lower(answer, key):
    """Putting the gold value in place of any value, or where there was none, never costs
    anything."""
    assert total({**answer, key: GOLD[key]}) >= total(answer) - 1e-12


@given(st.text())
@settings(max_examples=150, deadline=None)
def test_any_text_is_scored(text):
    for reading in ("strict", "lenient"):
        assert 0 <= total(text, reading) <= 1


def damaged(rng: np.random.Generator, text: str) -> str:
    """A completion as a broken model might write it: cut, doubled, spliced, with noise and hostile
    pieces."""
    for _ in range(rng.integers(1, 5)):
        kind, at = rng.integers(8), int(rng.integers(0, len(text) + 1))
        if kind == 0:
            text = text[:at]
        elif kind == 1:
            text = text[:at] + str(rng.choice(list('{}[]",:\\\n\t 0,.'))) + text[at:]
        elif kind == 2:
            text = text[:at] + text[at + 1 + int(rng.integers(0, 5)) :]
        elif kind == 3:
            text = text + text
        elif kind == 4:
            text = text[:at] + HOSTILE[int(rng.integers(len(HOSTILE)))][:300] + text[at:]
        elif kind == 5:
            text = "<think>" + text[:at] + "</think>" + text
        elif kind == 6:
            text = text.replace(".", ",").replace('"', "'")
        else:
            text = "".join(chr(int(c)) for c in rng.integers(1, 0x2FFF, size=20)) + text
    return text


def test_a_thousand_damaged_completions_are_all_scored_in_time(commerce):
    rng = np.random.default_rng(0)
    examples = [example for split in commerce.splits for example in commerce.examples(split)]
    answered = [examples[number % len(examples)] for number in range(1_000)]

    def scored(answer: tuple[Any, str]) -> None:
        assert 0 <= commerce.judge(*answer)[1].total <= 1

    assert most_work(scored, [(example, damaged(rng, example.gold)) for example in answered]) < 5


def test_the_schema_and_the_check_of_a_value_agree():
    """`fits` is the fast form of the JSON Schema that users are given."""
    samples = [
        None,
        True,
        False,
        0,
        1,
        3,
        -1,
        0.5,
        5.5,
        4.5,
        3.0,
        -2.0,
        0.0,
        10**400,
        float("inf"),
        "",
        [],
        {},
    ]
    samples += ["positivo", "nenhum", "x", "y" * 81]
    types = {
        "string": str,
        "boolean": bool,
        "null": type(None),
        "integer": int,
        "number": (int, float),
    }
    for key, spec in JSON_SCHEMA["properties"].items():
        for value in samples:
            names = spec["type"] if isinstance(spec["type"], list) else [spec["type"]]
            right = any(
                isinstance(value, types[n]) and (n == "boolean" or not isinstance(value, bool))
                for n in names
            )
            right = right or (
                "integer" in names and isinstance(value, float) and value.is_integer()
            )
            if right and value is not None and not isinstance(value, bool):
                right = value in spec.get("enum", [value])
                if isinstance(value, str):
                    right = right and spec.get("minLength", 0) <= len(value) <= spec.get(
                        "maxLength", 10**9
                    )
                else:
                    right = right and spec.get("minimum", -math.inf) <= value <= spec.get(
                        "maximum", math.inf
                    )
            assert fits(key, value) == right, (key, value)


class TestSloppiness:
    gold = json.dumps(GOLD, ensure_ascii=False)
    tired = Sloppiness(abridged=1, over=90)

    def write(self, **faults):
        return write_sloppily(self.gold, Sloppiness(**faults), np.random.default_rng(0))

    def test_none_is_the_gold(self):
        assert self.write() == self.gold

    def test_each_fault_is_of_form_alone(self):
        assert self.write(decimal_comma=1) == self.gold.replace("1.5", "1,5").replace("0.9", "0,9")
        assert self.write(unclosed=1) == self.gold[:-1]
        assert json.loads(self.write(abridged=1)) == {key: GOLD[key] for key in KEYS[:3]}
        assert total(self.write(decimal_comma=1, fenced=1, chatty=1)) > 0.7

    def test_a_probability_is_a_share(self):
        rng = np.random.default_rng(1)
        share = np.mean(
            [
                write_sloppily(self.gold, Sloppiness(unclosed=0.3), rng)[-1] != "}"
                for _ in range(2000)
            ]
        )
        assert share == pytest.approx(0.3, abs=0.04)

    def test_over_leaves_the_records_of_shorter_reviews_alone(self, commerce, monkeypatch):
        monkeypatch.setattr(
            commerce.job, "options", commerce.options.model_copy(update={"sloppiness": self.tired})
        )
        for example in commerce.examples("train"):
            is_long = len(example.reference["review"]) > self.tired.over
            assert (commerce.demonstration(example, 0) != example.gold) == is_long


class TestRubric:
    def test_an_unscored_part_is_left_out_and_stays_none(self):
        rubric = Rubric("toy", 1, (Part("a", 1, ""), Part("b", 3, "")))
        score = rubric.score({"a": 0.5, "b": None})
        assert score.total == 0.5
        assert score.parts["b"] is None

    @pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf")])
    def test_a_part_out_of_range_is_an_error(self, value):
        with pytest.raises(ValueError, match="a score lies in"):
            Rubric("toy", 1, (Part("a", 1, ""),)).score({"a": value})

    def test_missing_and_unknown_parts_are_errors(self):
        with pytest.raises(ValueError, match=r"unknown .*'c'.*'a'"):
            Rubric("toy", 1, (Part("a", 1, ""),)).score({"c": 1.0})

    def test_a_changed_weight_changes_the_identity(self):
        one, other = (Rubric("toy", 1, (Part("a", weight, ""),)).identity for weight in (1, 2))
        assert one != other

    def test_rubrics_that_make_no_sense(self):
        with pytest.raises(ValueError, match="twice"):
            Rubric("toy", 1, (Part("a", 1, ""), Part("a", 1, "")))
        with pytest.raises(ValueError, match="positive weight"):
            Rubric("toy", 1, (Part("a", 0, ""),))
        with pytest.raises(ValueError, match="more than everything"):
            Rubric("toy", 1, (Part("a", 1, ""),), form=(Part("b", 1.5, ""),))

    def test_the_weights_of_this_rubric_add_up(self):
        assert sum(part.weight for part in RUBRIC.parts) == pytest.approx(1)


class TestSomeKeysOnly:
    """Tiny models are asked for a few keys; the other parts then are None, not 0."""

    def test_the_law_holds_and_only_these_parts_are_judged(self, tmp_path):
        options = {"orders": 600, "extraction": 60, "keys": ["delay_days", "sentiment"]}
        task = open_task("commerce", options, tmp_path)
        laws = check_task(task, "train")
        assert laws.oracle == 1.0
        assert laws.raised == ()
        assert laws.baselines["blank"] == 0
        example = task.examples("val")[0]
        assert list(json.loads(example.gold)) == ["sentiment", "delay_days"]
        _, score = task.judge(example, example.gold)
        assert score.total == 1
        assert score.parts["sentiment"] == score.parts["delay_days"] == score.parts["exact"] == 1
        assert score.parts["main_complaint"] is None
        assert "sentiment,delay_days" in task.rubric

    @pytest.mark.parametrize("keys", [[], ["cor"], ["delivery_issue"]])
    def test_keys_that_cannot_be_asked_for(self, tmp_path, keys):
        with pytest.raises(RecipeError, match="keys"):
            open_task("commerce", {"keys": keys}, tmp_path)


@pytest.mark.parametrize("key", ["sentiment_score", "churn_risk", "delay_days"])
@pytest.mark.parametrize("value", ["1" + "0" * 400, "-1" + "0" * 400, "1e308", "-0.0"])
def test_numbers_that_no_float_holds_are_wrong_and_nothing_more(key, value):
    text = json.dumps(GOLD).replace(f'"{key}": {json.dumps(GOLD[key])}', f'"{key}": {value}')
    assert value in text
    assert parts(text)[key] == 0
