"""Answers that equal a stored gold answer and earn nothing, and how the columns that users store
are read."""

import json
import math
import re
from dataclasses import replace

import pytest

from plumbline.checks.check import examine
from plumbline.checks.diagnosis.readers import read_histories
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.checks.diagnosis.rules.gold import is_right
from tests.diagnosis.test_more_checks import drawn, log, notes, plain, stored, without


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("42", "42"),
        (" 42. ", "42"),
        ("1.234,5", "1234.5"),
        ("1,234,567", "1234567"),
        ("12 kg", "12"),
        ("R$ 89,90", "89.90"),
        ("So we add.\nThe answer is 42.", "42"),
        (r"hence \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("<answer>São  Paulo</answer>", "são paulo"),
        ("35*70 = 2450\n#### 2,450", "2450"),
        ("35*70 = 2450\n#### $2450", "So 35*70 = 2450\n#### 2450"),
        (r"or \boxed{2{,}450\text{ rolls}}", "2450"),
        (r"or $\boxed{12\%}$", "12"),
        (r"or \boxed{1/2}", "0.5"),
        (r"or 0.5, so \boxed{0.5}", r"\dfrac{1}{2}"),
        ('"Paris"', "Paris"),
        ('{"b": 1, "a": [2]}', '{"a":[2],"b":1}'),
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
    ],
)
def test_what_is_read_as_the_gold_answer(text, gold):
    assert is_right(text, gold)


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("43", "42"),
        ("42 it is not\n#### 43", "42"),
        (r"or \boxed{1/3}", "0.5"),
        ("4,500", "45"),
        ("", "42"),
        ("42 is what I tried, and it is wrong", "42"),
        ("4,5", "45"),
        ("between 42 and 43", "42"),
        ('{"a": 1}', '{"a": 2}'),
        ("The answer is 42, or 43", "42"),
        ("Paris is not it", "Paris"),
        ("-5", "5"),
        ("12 g", "12 kg"),
        ('""', '"'),
        ("{" * 9000, "{}x"),
    ],
)
def test_what_is_not(text, gold):
    assert not is_right(text, gold)


def asked(text, paid, *, gold=lambda n: f"{n}.5", parts=None):
    """A run of answers with the gold answer beside them."""
    samples = drawn(lambda place, n, copy: text(n, copy), reward=lambda *_: 0.0)
    known = [replace(one, gold=gold(int(one.prompt.split()[-1]))) for one in samples]
    told = [replace(one, reward=paid(one), parts=parts(one) if parts else {}) for one in known]
    return {name: level for name, level in without(stored(told)).items() if name == "gold-unpaid"}


def commas(every):
    """Right answers, of which so many have a decimal comma, and wrong ones."""
    return lambda n, copy: (
        (f"{n},5" if n % every == 0 else f"{n}.5") if copy < 2 else f"{n + copy} or so, {copy}"
    )


def strict(one):
    return float(one.text == one.gold)


@pytest.mark.parametrize(
    ("text", "paid", "parts", "found"),
    [
        (commas(2), strict, None, {"gold-unpaid": "fatal"}),
        (commas(10), strict, None, {"gold-unpaid": "warning"}),
        (commas(10**9), strict, None, {}),
        # Another part pays for what is meant.
        (
            commas(2),
            strict,
            lambda one: {"exact": strict(one), "meant": float(is_right(one.text, one.gold))},
            {},
        ),
        # What is paid has nothing to do with the gold answer.
        (commas(2), lambda one: float(len(one.text) % 2), None, {}),
        (commas(2), lambda one: 0.0, None, {"gold-unpaid": "fatal"}),
        # One point in ten for what is nearly the form that is wanted; four for what is wrong.
        (commas(2), lambda one: strict(one) or 0.1 * is_right(one.text, one.gold), None, {}),
        (
            commas(2),
            lambda one: strict(one) or 0.4 - 0.4 * is_right(one.text, one.gold),
            None,
            {"gold-unpaid": "fatal"},
        ),
    ],
)
def test_right_answers_that_earn_nothing(text, paid, parts, found):
    assert asked(text, paid, parts=parts) == found


def test_a_form_that_is_asked_for_and_learnt_is_a_note():
    def boxed(n, copy):
        if copy == 3:
            return f"nobody knows {n}"
        return rf"so \boxed{{{n}.5}}" if n > 120 or copy == 1 else f"the answer is {n}.5"

    assert asked(boxed, lambda one: float("boxed" in one.text)) == {"gold-unpaid": "note"}


def test_an_answer_that_was_read_from_the_completion_is_no_gold_answer():
    samples = drawn(plain, reward=lambda step, n, copy: float(copy == 0))
    read = [replace(one, gold=one.text if "2th" not in one.text else "none") for one in samples]
    assert "gold-unpaid" not in without(stored(read))


def state(folder, **evaluated):
    """A state of TRL with two logged steps and an evaluation at the second."""
    rows = [
        {"step": step, "loss": 0.1, "reward": 1.0, "rewards/right/mean": 0.5} for step in (1, 2)
    ]
    rows += [
        {
            "step": 2,
            "eval_loss": 0.1,
            "eval_reward": 0.2,
            "eval_rewards/right/mean": 0.25,
            **evaluated,
        }
    ]
    (folder / "trainer_state.json").write_text(
        json.dumps({"log_history": rows, "global_step": 2, "max_steps": 2})
    )
    (folder / "completions").mkdir()
    return folder / "completions"


def row(step, right, **more):
    chat = [{"role": "user", "content": "2 + 3"}]
    return {"step": step, "prompt": chat, "completion": "5", "right": right, **more}


def write(rows, file):
    if file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    else:
        table = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(table.Table.from_pylist(rows), file)


@pytest.mark.parametrize("name", ["completions_1.jsonl", "completions_1.parquet"])
def test_columns_of_users(tmp_path, name):
    rows = [
        row(1, 1.0, solution="5", level="easy", mode="train"),
        row(1, None, solution=None, mode="eval"),
        row(1, float("nan")),
    ]
    write(rows, state(tmp_path) / name)
    (history,) = read_histories(tmp_path)
    first, last = history.samples
    assert (first.gold, first.kind, first.reward, first.parts) == ("5", "easy", 1.0, {"right": 1.0})
    assert (last.gold, last.reward) == ("", None)
    assert math.isnan(last.parts["right"])
    assert [one.mode for one in history.evaluated] == ["eval"]


def test_a_number_written_as_a_text_is_one(tmp_path):
    write([row(1, "nan"), row(1, "0.5"), row(1, "half")], state(tmp_path) / "completions_1.jsonl")
    (history,) = read_histories(tmp_path)
    assert [str(one.parts.get("right")) for one in history.samples] == ["nan", "0.5", "None"]


@pytest.mark.parametrize(
    ("second", "name", "evaluated"),
    [
        ([0.25, 0.25], "completions_2.jsonl", 2),  # the means of the evaluation at this step
        ([0.0, 1.0], "completions_2.jsonl", 0),  # those of training
        ([0.0, 1.0], "eval_completions_2.jsonl", 2),
    ],
)
def test_completions_of_an_evaluation_are_none_of_training(tmp_path, second, name, evaluated):
    folder = state(tmp_path)
    write([row(1, 0.5)], folder / "completions_1.jsonl")
    write([row(2, value) for value in second], folder / name)
    (history,) = read_histories(tmp_path)
    assert (len(history.samples), len(history.evaluated)) == (3 - evaluated, evaluated)
    (elsewhere,) = read_histories(tmp_path / "trainer_state.json", folder)
    assert (len(elsewhere.samples), len(elsewhere.evaluated)) == (3 - evaluated, evaluated)


def test_a_reward_of_0_follows_from_right_answers_that_are_not_paid():
    samples = drawn(lambda place, n, copy: commas(2)(n, copy), reward=lambda *_: 0.0)
    known = [replace(one, gold=f"{one.prompt.split()[-1]}.5") for one in samples]
    found = notes(replace(log({"reward": 0.0, "frac_reward_zero_std": 1.0}), samples=known))
    assert (found["gold-unpaid"], found["no-signal"]) == ("fatal", "note")


@pytest.mark.parametrize(
    ("pays", "said"), [("another", "warning"), ("the right one", None), ("all", None)]
)
def test_right_answers_that_earn_no_more_than_others(pays, said):
    """Rewards of a group in the order of other answers; and a reward that pays all of them has its
    own finding."""
    samples = []
    for one in drawn(lambda place, number, copy: str(copy)):
        place = int(one.text) if pays == "the right one" else int(one.text) + one.step
        samples.append(replace(one, reward=float(pays == "all" or place % 4 == 2), gold="2"))
    assert notes(stored(samples)).get("gold-unpaid") == said


@pytest.mark.parametrize(
    ("gold", "text", "found"),
    [
        ("another each time", "a letter", True),
        ("the same", "a letter", False),
        ("in another form", "a letter", False),
        # what is asked differs, and no prompt shows it
        ("another each time", "mostly the gold answer", False),
        ("read from the completion", "a letter", False),
        # nobody can be right in the words of a poem
        ("another each time", "a poem", False),
    ],
)
def test_a_prompt_with_another_gold_answer_each_time(gold, text, found):
    samples = []
    for one in drawn(lambda place, n, copy: str(copy), lambda n: f"the question {n % 20}"):
        place, number = int(one.text), int(one.prompt.split()[-1])
        said = "abcd"[(number + place * (1 + one.step % 3)) % 4]
        known = {
            "the same": "b",
            "in another form": ("b", "B", " b.")[one.step % 3],
            "another each time": "abcd"[(number * 7 + one.step) % 4],
            "read from the completion": said,
        }[gold]
        wrote = {
            "a letter": said,
            "a poem": f"o {said}, how green",
            "mostly the gold answer": known if place % 3 else said,
        }[text]
        paid = float(wrote.upper() == known.strip(" .").upper())
        samples.append(replace(one, text=wrote, gold=known, reward=paid))
    (*said_of,) = [one for one in found_in(samples) if one.code == "several-golds"]
    assert len(said_of) == found
    if found:
        (one,) = said_of
        assert (one.level, one.evidence["prompts"], one.evidence["of"]) == ("warning", 20, 20)
        assert one.evidence["own"] == pytest.approx(0.25, abs=0.1)
        assert one.evidence["own"] - one.evidence["other"] < 0.1


def found_in(samples):
    return [one for one in examine(stored(samples), CHECKS).findings if one.check == "gold-unpaid"]


def first_number(text):
    return text.split()[0]


def last_number(text):
    return re.findall(r"\d+", text)[-1]


def tagged(text):
    return re.findall("<answer>(.*)</answer>", text)[-1]


@pytest.mark.parametrize(
    ("reader", "noise", "found"),
    [
        (first_number, 0, "first"),
        (last_number, 0, "last"),
        (tagged, 0, None),
        # a tenth of the verdicts is another's: no reader of numbers is so fickle
        (first_number, 10, None),
    ],
)
def test_a_reader_that_takes_another_number_of_the_text(reader, noise, found):
    def text(place, n, copy):
        one, other = n % 5, n // 5 % 3
        said = one + other + copy * (copy > 1)
        return f"{one} + {other} <answer>{said}</answer> for {1 + n % 3}"

    samples = []
    for place, one in enumerate(drawn(text, reward=lambda *_: 0.0)):
        n = int(one.prompt.split()[-1])
        gold = str(n % 5 + n // 5 % 3)
        paid = (reader(one.text) == gold) ^ (noise > 0 and place % noise == 0)
        parts = {"form": 1.0, "right": float(paid)}
        samples.append(replace(one, gold=gold, reward=1.0 + paid, parts=parts))
    said = [one for one in found_in(samples) if one.code == "other-number"]
    assert [one.evidence["number"] for one in said] == ([found] if found else [])
    if found:
        (one,) = said
        right = [s for s in samples if tagged(s.text) == s.gold]
        lost = [s for s in right if not s.parts["right"]]
        assert (one.level, one.about, one.since) == ("fatal", "right", lost[0].step)
        assert (one.evidence["right"], one.evidence["earn nothing"]) == (len(right), len(lost))
        paid = [s for s in samples if s.parts["right"] and tagged(s.text) != s.gold]
        assert one.evidence["wrong"] == len(paid)


WRITINGS = ("{}", "{}.", "`{}`", "{}.0", "{:,}")


def written(paid, *, parts=None):
    """Answers of numbers in several writings, half of them right, without a gold answer."""
    samples = drawn(
        lambda place, n, copy: WRITINGS[(n + copy) % 5].format(1000 + n % 4 + (copy % 2) * 7),
        lambda n: f"the question {n % 4}",
        reward=lambda *_: 0.0,
    )
    told = [
        replace(one, reward=paid(one), parts={name: of(one) for name, of in (parts or {}).items()})
        for one in samples
    ]
    return {name for name in without(stored(told)) if name in {"writing-unpaid", "gold-unpaid"}}


def is_meant(one):
    return float(one.text.strip("`.").removesuffix(".0").replace(",", "") == f"100{one.prompt[-1]}")


def is_plain(one):
    return float(one.text.isdigit())


@pytest.mark.parametrize(
    ("paid", "parts", "found"),
    [
        (lambda one: is_meant(one) * is_plain(one), None, {"writing-unpaid"}),
        (lambda one: is_meant(one) * ("`" not in one.text), None, {"writing-unpaid"}),
        (is_meant, None, set()),
        (is_plain, None, set()),
        (lambda one: 2.0, {"right": lambda one: is_meant(one) * is_plain(one)}, {"writing-unpaid"}),
        (
            lambda one: 1.0,
            {"exact": lambda one: is_meant(one) * is_plain(one), "right": is_meant},
            set(),
        ),
        (lambda one: 1.0, {"right": is_meant, "form": is_plain}, set()),
    ],
)
def test_one_answer_in_another_writing(paid, parts, found):
    assert written(paid, parts=parts) == found


@pytest.mark.parametrize("made", ["{0}+{1}*2", "{0}, {1}", "({0}+{1})*2", "x = {0}"])
def test_another_sign_or_another_list_is_another_answer(made):
    others = made, made.replace("+", "-").replace("=", "<"), made.replace(", ", "."), made

    def text(n, copy):
        return others[copy].format(n % 9 + copy // 3, n % 7)

    samples = drawn(lambda place, n, copy: text(n, copy), lambda n: f"the question {n % 63}")
    told = [
        replace(one, reward=float(one.text == text(int(one.prompt.split()[-1]), 0)))
        for one in samples
    ]
    assert "writing-unpaid" not in without(stored(told))


@pytest.mark.parametrize(("fenced", "level"), [(32, "warning"), (0, None)])
def test_a_writing_that_is_soon_given_up_was_rejected_all_the_same(fenced, level):
    def text(n, copy):
        if copy == 3:
            return f"{n + 1}.5"
        return f"`{n}.5`" if n < fenced and copy else f"{n}.5"

    assert asked(text, strict) == ({"gold-unpaid": level} if level else {})
