"""Scaffolds: every answer is a valid document, whatever the model, and the laws of a policy hold on them."""

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plumbline.errors import RecipeError
from plumbline.policies.masked import scaffold
from plumbline.policies.masked.json_form import read_form
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.masked.regular import compiled
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.recipe import TinySection
from plumbline.testing import check_policy, sampled
from tests.conftest import WORDS, sharpen
from tests.policies.masked.conftest import opened

CHAT = [{"role": "user", "content": "nota?"}]
SELECTORS = ("random", "ancestral", "leftmost", "plackett_luce", "plackett_luce_set", "threshold")
CANVAS = 40


def an_object(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


REVIEW = an_object(
    sentiment={"type": "string", "enum": ["positivo", "negativo", "neutro"]},
    nota={"type": "number", "minimum": 0, "maximum": 5},
    dias={"type": ["integer", "null"], "minimum": 0},
)
SMALL = an_object(a={"enum": ["nota", "ok"]}, n={"type": "integer", "minimum": 8, "maximum": 11})


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """Untrained, with a tokenizer that has seen such documents."""
    folder = tmp_path_factory.mktemp("models") / "json"
    texts = [*WORDS, json.dumps({"sentiment": "positivo", "nota": 4.5, "dias": None, "ok": True}), "negativo neutro"]
    make_tiny(folder, TinySection(hidden=32, layers=2, heads=2, vocabulary=400, context=128), texts * 10, 0, "masked")
    sharpen(folder, 3.0)
    return opened(folder, canvas=CANVAS)


def law(schema, **options):
    return MaskedSampling(**{"max_tokens": CANVAS, "steps": 4, "scaffold": json.dumps(schema), **options})


def drawn(policy, under, copies=20):
    (trajectories,) = sampled(policy, [CHAT], copies, under, 0)
    return trajectories


def size_of(policy, schema):
    """The places of the smallest canvas that holds each number and word as it is written."""
    (least,) = re.findall(r"at least (\d+)", _refusal(policy, law(schema, max_tokens=4)))
    return int(least)


def _refusal(policy, under):
    with pytest.raises(RecipeError) as caught:
        drawn(policy, under, 1)
    return str(caught.value)


@pytest.mark.parametrize("selector", SELECTORS)
def test_both_laws_hold_on_a_scaffold(policy, selector):
    extra = {"threshold": 0.6, "position_temperature": 0.3} if selector == "threshold" else {}
    places = size_of(policy, SMALL) + 1
    laws = check_policy(policy, CHAT, law(SMALL, selector=selector, max_tokens=places, steps=2, **extra), draws=1500)
    assert laws.gap < 2e-5
    assert laws.chi_square_p > 1e-3
    assert 0.95 < laws.mass < 1 + 1e-5
    assert laws.kinds >= 8


def test_temperatures_and_filters_act_within_what_is_allowed(policy):
    under = law(SMALL, selector="plackett_luce", temperature=0.6, top_k=2, max_tokens=size_of(policy, SMALL) + 1)
    laws = check_policy(policy, CHAT, under, draws=1500)
    assert laws.gap < 2e-5
    assert laws.chi_square_p > 1e-3


def test_a_scorer_that_does_not_know_the_scaffold_breaks_law_1(policy, monkeypatch):
    honest = policy.score
    monkeypatch.setattr(
        policy,
        "score",
        lambda given_: honest([replace(t, sampling=replace(t.sampling, scaffold="")) for t in given_]),
    )
    assert check_policy(policy, CHAT, law(SMALL, selector="plackett_luce"), draws=200).gap > 0.1


def test_a_divergence_is_that_of_the_restricted_laws(policy):
    """To the same weights it is 0."""
    policy.keep_reference()
    trajectories = drawn(policy, law(REVIEW, selector="plackett_luce"), 4)
    terms = policy.score(trajectories, divergence=True)
    assert float(terms.divergence.detach().abs().max()) < 1e-5


VALUES = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "string"}),
    st.builds(lambda most: {"type": "string", "minLength": 1, "maxLength": most}, st.integers(1, 6)),
    st.builds(lambda words: {"enum": words}, st.lists(st.sampled_from(["a", "bom", 'a"b', 1, -2.5, None]), min_size=1)),
    st.builds(
        lambda kind, a, b: {"type": kind, "minimum": min(a, b), "maximum": max(a, b)},
        st.sampled_from(["integer", "number"]),
        st.integers(-30, 0),
        st.integers(0, 300),
    ),
    st.just({"type": ["number", "null"]}),
    st.just({"anyOf": [{"type": "string"}, {"type": "null"}]}),
    st.just({"type": "array", "items": {"enum": ["x", "é"]}, "maxItems": 2}),
    st.just({"type": "array", "items": {"type": "integer", "maximum": 4}, "minItems": 1}),
    st.just(an_object(b={"type": "boolean"})),
)
KEYS = st.sampled_from(["a", "nota", "é", "main_complaint", 'q"t', "x y"])


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=3), st.sampled_from(SELECTORS), st.booleans())
def test_every_answer_is_valid(policy, properties, selector, greedy):
    jsonschema = pytest.importorskip("jsonschema")
    schema = an_object(**properties)
    under = law(schema, selector=selector)
    try:
        trajectories = drawn(policy, under.as_greedy() if greedy else under, 4)
    except RecipeError as error:
        if "single answer" in error.cause or "needs a canvas" in error.cause:
            return
        raise
    for trajectory in trajectories:
        assert trajectory.finish == "stop"
        jsonschema.validate(json.loads(trajectory.text), schema)
    if not greedy:
        terms = policy.score(trajectories)
        assert float((terms.logprobs - terms.recorded).detach().abs().max()) < 2e-5


def test_what_is_remembered_is_dropped_and_found_again(policy, monkeypatch):
    under = law(REVIEW, selector="plackett_luce")
    before = [trajectory.text for trajectory in drawn(policy, under)]
    monkeypatch.setattr(scaffold, "MASKS", 0)
    again = drawn(policy, under)
    assert [trajectory.text for trajectory in again] == before
    terms = policy.score(again)
    assert float((terms.logprobs - terms.recorded).detach().abs().max()) < 2e-5


def test_a_decimal_comma_cannot_be_written(policy):
    """Of 200 answers of a model that knows nothing, some write a fraction, and all of them with a point."""
    texts = [trajectory.text for trajectory in drawn(policy, law(REVIEW), 200)]
    assert any(re.search(r'"nota": \d\.\d', text) for text in texts)
    assert all(isinstance(json.loads(text)["nota"], int | float) for text in texts)
    number = language({"type": "number"})
    assert number("4.5")
    assert not number("4,5")


def language(schema):
    """Whether a text is a value of a schema, by the table of bytes."""
    table = compiled(read_form(json.dumps(an_object(x=schema))).values[0].part)

    def accepts(text):
        state = 0
        for byte in text.encode():
            state = int(table.moves[state, byte])
        return bool(table.final[state])

    return accepts


@pytest.mark.parametrize(
    "bounds", [(0, 5), (-1.25, 0.5), (8, 11), (-12, -3), (0.5, 0.5), (99, 101), (None, 3), (2.5, None), (0.05, 10)]
)
def test_the_numbers_of_a_range_are_those_within_it(bounds):
    schema = {key: bound for key, bound in zip(("minimum", "maximum"), bounds, strict=True) if bound is not None}
    low, high = (-9e9 if bounds[0] is None else bounds[0]), (9e9 if bounds[1] is None else bounds[1])
    written = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
    number = language({"type": "number", **schema})
    whole = language({"type": "integer", **schema}) if bounds != (0.5, 0.5) else lambda _: False
    for size in range(1, 5):
        for letters in itertools.product("-0159.", repeat=size):
            text = "".join(letters)
            inside = bool(written.fullmatch(text)) and low <= float(text) <= high
            if inside and text.startswith("-") and low >= 0:
                continue  # minus nothing
            assert number(text) == inside, text
            assert whole(text) == (inside and "." not in text), text


def test_what_is_allowed_is_what_some_document_has(policy):
    """At every place of a hole, against all sequences of tokens that spell a number, however some places are filled."""
    schema = an_object(n={"type": "integer", "minimum": 8, "maximum": 102}, b={"type": "boolean"})
    held = policy.scaffold(law(schema))
    hole = held.holes[0]
    tokenizer = policy.chat.tokenizer
    letters = set(' 0123456789,"b')
    used = [
        i for i in range(len(tokenizer)) if i not in tokenizer.all_special_ids and set(tokenizer.decode([i])) <= letters
    ]
    words = [
        tokens
        for tokens in itertools.product(used, repeat=hole.end - hole.start)
        if (found := re.fullmatch(r"(\d+), *", tokenizer.decode(list(tokens)))) and found[1] == str(int(found[1]))
        if 8 <= int(found[1]) <= 102
    ]
    assert len(words) > 90
    rng = np.random.default_rng(0)
    for _ in range(40):
        word = words[rng.integers(len(words))]
        shown = rng.random(len(word)) < rng.random()
        canvas = np.full_like(held.canvas, policy.mask_id)
        canvas[hole.start : hole.end] = np.where(shown, word, policy.mask_id)
        left = [w for w in words if all(not s or a == b for s, a, b in zip(shown, w, word, strict=True))]
        for place in np.flatnonzero(~shown):
            found = held.allowed([canvas], [np.array([hole.start + place])])
            assert set(np.flatnonzero(found.table[found.which[0]]).tolist()) == {w[place] for w in left}


def test_a_document_whose_values_fill_their_holes_is_tokenised_as_its_demonstration(policy):
    """What the model was trained on and what it is asked for are then the same tokens."""
    schema = an_object(sentiment=REVIEW["properties"]["sentiment"])
    for trajectory in drawn(policy, law(schema)):
        demonstration = policy.demonstrate([*CHAT, {"role": "assistant", "content": trajectory.text}])
        canvas = trajectory.answer.tolist()
        assert list(demonstration.tokens)[len(trajectory.prompt) :][: len(canvas)] == canvas


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "object"}, "not an object with known properties"),
        ({"type": "array", "items": {}}, "not an object with known properties"),
        (an_object(a={"type": "string", "pattern": "x"}), "says pattern, which a scaffold cannot hold to"),
        (an_object(a={"$ref": "#/x"}), "type is None"),
        (an_object(a={"type": "text"}), "type is 'text'"),
        (an_object(a={"type": "number", "minimum": 3, "maximum": 2}), "admits no number"),
        (an_object(a={"type": "string", "maxLength": 10**6}), "whole numbers from 0 to 256"),
        (an_object(a={"enum": []}), "not a list of 1 to 256"),
        ({**an_object(a={"type": "null"}), "required": ["b"]}, "requires a property that it does not describe"),
        ({**an_object(a={"type": "null"}), "minProperties": 1}, "says minProperties"),
    ],
)
def test_a_schema_that_cannot_be_held_to_is_an_error(schema, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        law(schema)


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "3", '"a"'])
def test_what_is_no_schema_is_an_error(text):
    with pytest.raises(ValueError, match="schema"):
        MaskedSampling(scaffold=text)


class TestRefusals:
    def test_a_canvas_that_is_too_small(self, policy):
        assert "needs a canvas of at least" in _refusal(policy, law(REVIEW, max_tokens=10))

    def test_nothing_to_choose(self, policy):
        assert "a single answer" in _refusal(policy, law(an_object(a={"const": 1})))

    def test_the_native_selector(self, policy):
        assert "low_confidence" in _refusal(policy, law(REVIEW, selector="low_confidence"))

    def test_blocks(self):
        with pytest.raises(ValueError, match="blocks must be 1"):
            law(REVIEW, blocks=2)

    def test_a_bound(self, policy):
        (trajectory,) = drawn(policy, law(REVIEW), 1)
        with pytest.raises(RecipeError, match="a bound hides any place"):
            policy.hide(trajectory, np.ones(CANVAS, dtype=np.bool_))
