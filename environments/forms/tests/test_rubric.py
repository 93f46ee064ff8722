"""The rubric and the task: the laws on every split, the baselines' ceilings, hand-scored forms,
damaged plans."""

import itertools
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.forms.tests.small import ANY, FILES, form_of, small_form, visit
from plumbline.api import HOSTILE, TaskLaws, check_task
from plumbline.errors import DataError
from plumbline.records import Failure, Score
from plumbline.rollouts.reward_workers import judge as judge_safely
from plumbline.tasks import open_task
from plumbline_browser.plans.actions import (
    Attach,
    Check,
    Click,
    Done,
    Plan,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline_browser.plans.reader import read_steps
from plumbline_browser.plans.writer import write_steps
from plumbline_forms import rubric
from plumbline_forms.build import values_of, write_gold
from plumbline_forms.executors.executor import FormCase
from plumbline_forms.options import FormsOptions
from plumbline_forms.plans.oracle import plan_for
from plumbline_forms.rubric import (
    RUBRIC,
    canonical,
    closeness,
    expected,
    gold,
    needed,
    score,
    wasted,
)
from plumbline_forms.site.page import FormView
from plumbline_forms.suite.catalogue import (
    FORMS,
    area,
    box,
    boxes,
    consent,
    date,
    draw_record,
    select,
    tel,
    text,
    url,
)
from plumbline_forms.task import FormsTask
from tests.work import most_work, work

CEILINGS = {
    "blank": 0.0,
    "echo": 0.0,
    "submit-only": 0.05,
    "type-after-submit": 0.05,
    "success-text": 0.05,
    "constant": 0.15,
    "shuffled-gold": 0.15,
    "spray": 0.15,
}


def assert_law(laws: TaskLaws) -> None:
    assert laws.oracle == 1.0
    assert laws.raised == ()
    assert laws.baselines.keys() == CEILINGS.keys()
    over = {name: mean for name, mean in laws.baselines.items() if mean > CEILINGS[name]}
    assert not over, over


@pytest.mark.parametrize("split", ["val", "test", "held-out-forms"])
def test_the_law_of_the_task(fewer, split):
    """On a few records of each form; below stand the plans of all records, and what each form by
    itself pays."""
    assert_law(check_task(fewer, split))


def test_the_plan_of_every_record_is_right(forms):
    wrong = [
        example.id
        for split in forms.splits
        for example in forms.examples(split)
        if forms.judge(example, example.gold)[1].total != 1.0
    ]
    assert wrong == []


def test_no_form_by_itself_pays_for_nothing():
    """The ceilings hold form by form, not only on average, so that no policy can live on the
    easiest form."""
    options = {"records": 3, "noise": {"prefilled": 1.0, "stars": 0.5}}
    task = open_task("forms", options, Path())
    for name, ceiling in CEILINGS.items():
        earned = defaultdict(list)
        for split in task.splits:
            examples = task.examples(split)
            for example, answer in zip(examples, task.baselines[name](examples), strict=True):
                earned[example.stratum].append(task.judge(example, answer)[1].total)
        assert max(map(np.mean, earned.values())) <= max(ceiling, 0.001), name


class Fooled:
    """The task with another rubric."""

    def __init__(self, task):
        self.task = task

    def __getattr__(self, name):
        return getattr(self.task, name)


class PaysForWords(Fooled):
    """A rubric that is fooled by a page that says thank you: what the law has to catch."""

    def judge(self, example, completion):
        outcome, fair = self.task.judge(example, completion)
        happy = outcome.facts["submitted"] or "success" in completion
        return outcome, Score(total=max(fair.total, 0.4 * happy), rubric="words")


class PaysForClaims(Fooled):
    """A rubric that believes what a plan says that it typed."""

    def judge(self, example, completion):
        outcome, _ = self.task.judge(example, completion)
        claims = {one.text for one in read_steps(completion).actions if isinstance(one, Type)}
        wanted = {value for value in example.reference["values"].values() if isinstance(value, str)}
        total = 1.0 if completion == example.gold else 0.9 * len(claims & wanted) / len(wanted)
        return outcome, Score(total=total, rubric="claims")


@pytest.mark.parametrize("fooled", [PaysForWords, PaysForClaims])
def test_a_rubric_that_pays_for_words_breaks_the_law(fewer, fooled):
    with pytest.raises(AssertionError):
        assert_law(check_task(fooled(fewer), "val"))


def test_the_seeds_rubric_breaks_the_law_and_is_labelled_as_what_it_is():
    task = open_task("forms", {"rubric": "seed-v6", "records": 10}, Path())
    assert task.rubric.startswith("forms-seed-v6/")
    laws = check_task(task, "val")
    assert laws.oracle < 1.0
    assert laws.baselines["submit-only"] > 0.2
    assert laws.baselines["type-after-submit"] > 0.5
    assert laws.raised == ()
    with pytest.raises(AssertionError):
        assert_law(laws)


def test_another_examples_answer_is_not_right(forms):
    first, second = [one for one in forms.examples("train") if one.stratum == "vpn-access"][:2]
    _, fair = forms.judge(replace(first, reference=second.reference), first.gold)
    assert fair.total < 0.5
    with pytest.raises(DataError, match="not among"):
        forms.judge(replace(first, reference={**first.reference, "form": "x"}), "")


# -- forms scored by hand --------------------------------------------------------------------------

VALUES = {
    "name": "Ann",
    "notes": "one two three four five six seven eight",
    "colour": "b",
    "way": "post",
    "days": ("mo", "we"),
    "news": True,
    "why": "cats",
    "cv": ("cv.pdf",),
}
RIGHT = (
    Type("Name", "Ann"),
    Type("Notes", VALUES["notes"]),
    Select("Colour", "Dark blue"),
    Select("Way", "Post"),
    Check("Days", "Monday"),
    Check("Days", "Wednesday"),
    Check("News"),
    Type("Why news", "cats"),
    Attach("CV", "cv.pdf"),
)
FORM = small_form(notes=area("Notes", ANY))
WEIGHT = 1 + 1 + 2 / 3 + 1 / 2 + 0.75 + 0.5 + 1 + 1


def scored(*actions, form=FORM, values=VALUES, view=None, submit=True, unread=0, idle=0):
    result, _ = visit(form, *actions, view=view, submit=submit)
    plan = Plan((*actions, Submit()) if submit else actions, unread=unread, idle=idle)
    return score(expected(view or FormView(form), values), plan, result)


def without(index, *instead):
    return [*RIGHT[:index], *instead, *RIGHT[index + 1 :]]


def test_everything_right_is_one_and_nothing_sent_is_zero():
    perfect = scored(*RIGHT)
    assert perfect.total == 1.0
    assert perfect.parts["exact"] == perfect.parts["submitted"] == 1.0
    assert {name for name in perfect.parts if name.startswith("kind-")} == {
        f"kind-{kind}"
        for kind in ("text", "textarea", "select", "radio", "checkboxes", "checkbox", "file")
    }
    unsent = scored(*RIGHT, submit=False)
    assert unsent.total == 0
    assert set(unsent.parts) == set(perfect.parts)
    assert not any(unsent.parts.values()), "no part of what never arrived is right"
    assert scored().total == 0, "clicking the button of an untouched form"


@pytest.mark.parametrize(
    ("actions", "lost", "changed"),
    [
        (without(0), 1, 0),
        (without(0, Type("Name", "Bob")), 1, 0),
        (without(0, Type("Name", "  Ann ")), 0, 0),
        (without(1, Type("Notes", "other words entirely")), 1, 0),
        (without(1, Type("Notes", VALUES["notes"].replace(" ", "\n"))), 0, 0),
        (
            without(1, Type("Notes", "one two three four five six")),
            1 - 0.9 * (2 * 2 * 6 / 14 - 1),
            0,
        ),
        (without(2, Select("Colour", "Red")), 2 / 3, 0),
        (without(3, Select("Way", "Pick up")), 1 / 2, 0),
        (without(4), 0.75, 0),
        (without(4, Check("Days", "Monday"), Check("Days", "Tuesday")), 0.75 * (2 - 4 / 3), 0),
        (without(8, Attach("CV", "b.pdf")), 1, 0),
        ([*RIGHT, Type("Phone", "5")], 0, 1),
        (
            [*RIGHT, Type("Phone", "5"), Attach("Pictures", "photo.png"), Select("Size", "Large")],
            0,
            3,
        ),
    ],
)
def test_one_mistake_costs_its_share(actions, lost, changed):
    got = scored(*actions)
    kept = 1 - min(1, 2 * changed / 21)
    exact = float(lost == 0 and changed == 0)
    assert got.parts["fields"] == pytest.approx(1 - lost / WEIGHT)
    assert got.parts["kept"] == pytest.approx(kept)
    assert got.parts["exact"] == exact
    assert got.total == pytest.approx(
        (0.8 * (1 - lost / WEIGHT) + 0.2 * exact) * (1 - 0.5 * (1 - kept))
    )


NEED = 9 + 2 + 2
"""Entries of RIGHT, boxes that are told (two of them are), the way there and the button."""


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ([Type("Nothing", "x")], 1),
        ([Select("Name", "x")], 1),
        ([Select("Colour", "Purple")], 1),
        ([Attach("CV", "none.pdf")], 1),
        ([Submit("Elsewhere")], 1),
        ([Submit("Elsewhere")] * 5, 5),
        ([Type("Nothing", "x")] * 150, NEED - 1),
        ([Click("Name", "field")] * 4, 0),  # a click into a field before typing is how people do it
        ([Click("Name", "field")] * 150, NEED - 1),
    ],
)
def test_actions_that_come_to_nothing_cost_their_share(more, count):
    need = needed(expected(FormView(FORM), VALUES), 1)
    assert need == NEED - 1
    got = scored(*more, *RIGHT)
    assert got.parts["economy"] == pytest.approx(1 - min(count, need) / need)
    assert got.total == pytest.approx(1 - 0.9 * min(count, need) / need)
    assert (got.parts["fields"], got.parts["exact"]) == (1.0, 1.0)


def test_lines_that_are_not_understood_and_refused_forms_cost_as_much():
    assert scored(*RIGHT, unread=3).total == scored(*[Type("Nothing", "x")] * 3, *RIGHT).total < 1
    assert scored(*RIGHT, idle=3).total == 1.0
    assert scored(*RIGHT, idle=300).total == pytest.approx(0.1)
    result, _ = visit(FORM, Type("Start", "2026-02-02"), Type("End", "2026-02-01"))
    plan = Plan((Type("Start", "2026-02-02"), Type("End", "2026-02-01"), Submit()))
    refused = replace(
        result, receipts=tuple(replace(one, errors={"end": "too early"}) for one in result.receipts)
    )
    assert wasted(plan, refused, 12) == wasted(plan, result, 12) + 1


def test_what_is_never_carried_out_came_to_nothing():
    after_the_end = scored(*RIGHT, Submit(), Done(), *[Type("Name", "x")] * 5)
    assert after_the_end.total < scored(*RIGHT).total == 1.0


@given(
    st.lists(
        st.sampled_from([Type("Nothing", "x"), Select("Name", "y"), Check("News"), Click("Name")]),
        max_size=30,
    )
)
@settings(max_examples=60, deadline=None)
def test_a_plan_without_its_last_useless_action_never_earns_less(useless):
    totals = [scored(*useless[:count], *RIGHT).total for count in range(len(useless) + 1)]
    assert totals == sorted(totals, reverse=True)
    assert totals[-1] >= 0.1 - 1e-12


def test_the_spray_gets_most_entries_right_and_pays_for_how_it_did(fewer):
    examples = fewer.examples("val")
    scores = [
        fewer.judge(example, text)[1]
        for example, text in zip(examples, fewer.baselines["spray"](examples), strict=True)
    ]
    assert np.mean([one.parts["fields"] for one in scores]) > 0.7
    assert max(one.total for one in scores) < 0.2


def test_padding_a_right_plan_costs():
    task, junk = (
        open_task("forms", {"records": 10}, Path()),
        "Type 'junk' into the 'Nothing' field\n",
    )

    def rewards(before="", after=""):
        examples = task.examples("val")
        return [task.judge(one, before + one.gold + after)[1].total for one in examples]

    failing = rewards(junk)
    assert 0.8 < min(failing) < np.mean(failing) < 1
    assert np.mean(rewards("Click the Submit button\n" * 5)) < 0.8
    for many in (junk * 150, "Step 1: Frobnicate it\n" * 150, "Press 'Tab'\n" * 150):
        assert np.mean(rewards(many)) < 0.2
    assert np.mean(rewards(after="\n" + junk * 150)) < 0.2


def test_what_must_be_ticked_anyway_pays_nothing():
    form = form_of(consent("Ok"), text("Name", ANY))
    assert scored(Check("Ok"), form=form, values={"ok": True, "name": "x"}).total == 0
    assert (
        scored(Check("Ok"), Type("Name", "x"), form=form, values={"ok": True, "name": "x"}).total
        == 1
    )


def test_prefilled_fields_pay_only_where_they_were_wrong():
    form = form_of(text("A", ANY), text("B", ANY))
    values = {"a": "right", "b": "new"}
    view = FormView(form, {"a": "right", "b": "old"})
    assert scored(form=form, values=values, view=view).total == 0
    assert scored(Type("B", "new"), form=form, values=values, view=view).total == 1
    spoiled = scored(Type("B", "new"), Type("A", "wrong"), form=form, values=values, view=view)
    assert spoiled.total == pytest.approx(0.8 * 0.5)


def test_a_prefilled_text_that_resembles_the_right_one_pays_only_what_is_entered():
    """Left as it was, it earns nothing; typed over something else, the same words earn most of the
    field."""
    form = form_of(area("Notes", ANY), text("B", ANY))
    values = {"notes": "one two three four five six seven eight", "b": "new"}
    nearly = "one two three four five six seven"

    def prefilled(notes, *actions):
        return scored(
            Type("B", "new"),
            *actions,
            form=form,
            values=values,
            view=FormView(form, {"notes": notes}),
        )

    left, typed = prefilled(nearly), prefilled("x", Type("Notes", nearly))
    assert left.parts["fields"] == 0.5
    assert (left.parts["kind-textarea"], left.parts["exact"]) == (0.0, 0.0)
    assert typed.parts["kind-textarea"] == pytest.approx(0.9 * (2 * 2 * 7 / 15 - 1))
    assert prefilled(nearly, Type("Notes", "")).parts["kind-textarea"] == 0.0


def test_what_resembles_the_right_value_pays_in_long_texts_only():
    """In a line of text one word is a street number or a name."""
    address = "12 Long Street Old Town North"
    form = form_of(text("A", ANY), text("B", ANY))
    got = scored(
        Type("A", f"{address} 3"), Type("B", "x"), form=form, values={"a": f"{address} 4", "b": "x"}
    )
    assert (got.parts["kind-text"], got.parts["exact"]) == (0.5, 0.0)


def test_a_form_that_was_right_already_pays_nothing():
    form = form_of(text("A", ANY), text("B", ANY))
    values = {"a": "right", "b": "too"}
    sent = scored(form=form, values=values, view=FormView(form, values))
    assert (sent.total, sent.parts["fields"], sent.parts["exact"], sent.parts["kept"]) == (
        0,
        0,
        0,
        1,
    )
    assert [(one.kept, one.weight) for one in expected(FormView(form, values), values)] == [
        (True, 0.0)
    ] * 2


WORDS = st.lists(st.sampled_from("abc"), max_size=7)


@given(WORDS, WORDS)
def test_words_in_order_are_the_longest_common_subsequence(mine, wanted):
    parts = {
        part for size in range(len(wanted) + 1) for part in itertools.combinations(wanted, size)
    }
    shared = (part for part in parts if all(word in rest for rest in [iter(mine)] for word in part))
    assert rubric._in_order(mine, wanted) == max(map(len, shared))


def test_a_flood_of_words_is_worth_nothing_and_is_not_compared_word_by_word(monkeypatch):
    """A million words against a hundred would take minutes, and could not be worth anything."""
    (notes,) = [one for one in expected(FormView(FORM), VALUES) if one.field.name == "notes"]
    assert closeness(notes, VALUES["notes"]) == 0.9
    assert closeness(notes, f"{VALUES['notes']} " * 2) == pytest.approx(0.9 / 3)
    assert closeness(notes, f"{VALUES['notes']} " * 4) == 0.0
    monkeypatch.setattr(rubric, "_in_order", lambda mine, wanted: pytest.fail("they were compared"))
    assert closeness(notes, "one two three " * 100) == 0.0


def test_canonical_forms():
    day, address = date("D", ANY), url("U", ANY)
    for one, first, second in (
        (tel("T", ANY), "(11) 9555-1234", "1195551234"),
        (address, "HTTPS://Example.org/", "https://example.org"),
        (text("X", ANY), "ﬁn  de \u00a0 mês", "fin de mês"),
        (select("S", "a|b"), "a", "a"),
    ):
        assert canonical(one, (first,)) == canonical(one, (second,))
    assert canonical(address, ("https://x.org/A",)) != canonical(address, ("https://x.org/a",))
    assert gold(day, None) == canonical(day, ("",)) == ""
    assert gold(boxes("B", "a|b"), ("b", "a")) == ("a", "b")
    assert gold(box("B"), False) == ()
    number = FORMS["dietary-intake"].by_name["weight_in_kg"]
    assert canonical(number, ("70.50",)) == canonical(number, ("7.05e1",)) == "70.5"
    assert canonical(number, ("1e999",)) != canonical(number, ("1e998",))


@pytest.mark.parametrize(
    "name", ["dietary-intake", "gallery-volunteer", "library-card", "trademark-watch"]
)
def test_a_better_answer_never_scores_lower(forms, name):
    """From another record's plan to the right one, one field after the other: the reward never
    falls."""
    form = FORMS[name]
    for index in range(4):
        values, wrong = draw_record(form, 42, index), draw_record(form, 42, index + 100)
        rng = np.random.default_rng(index)
        asked, case = expected(FormView(form), values), FormCase(FormView(form), FILES)
        last = -1.0
        order = [one.name for one in form.fields if one.kind != "hidden" and not one.shown_if]
        if values != wrong:
            mixed = {**wrong, **{n: values[n] for n in order if form.by_name[n].options}}
            for step in ["", *rng.permutation(order)]:
                if step:
                    mixed[step] = values[step]
                now = {
                    n: v if not form.by_name[n].shown_if else values[n] for n, v in mixed.items()
                }
                plan = Plan(tuple(plan_for(FormView(form), now)))
                total = score(asked, plan, forms.executor.run(case, [plan])[0]).total
                assert total >= last - 1e-12, step
                last = total
        assert last == 1.0


# -- damaged and hostile plans ---------------------------------------------------------------------


def damaged(rng: np.random.Generator, plan: str, other: str) -> str:
    """A plan as a broken model might write it: lines lost, doubled, moved, mixed up, cut; signs
    lost and put in."""
    lines = plan.split("\n")
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(len(lines))) if lines else 0
        kind = int(rng.integers(9))
        if kind == 0 and lines:
            del lines[at]
        elif kind == 1 and lines:
            lines.insert(at, lines[at])
        elif kind == 2:
            lines.insert(at, str(rng.choice(other.split("\n"))))
        elif kind == 3:
            lines = lines[:at]
        elif kind == 4 and len(lines) > 1:
            to = int(rng.integers(len(lines)))
            lines[at], lines[to] = lines[to], lines[at]
        elif kind == 5 and lines:
            cut = int(rng.integers(len(lines[at]) + 1))
            lines[at] = lines[at][:cut]
        elif kind == 6 and lines:
            place = int(rng.integers(len(lines[at]) + 1))
            sign = str(rng.choice([*"'\"\\\n“ ,.{}[]0é", " into the ", "Submit", "\ud800", "\x00"]))
            lines[at] = lines[at][:place] + sign + lines[at][place:]
        elif kind == 7:
            lines = (
                "\n".join(lines)
                .replace(str(rng.choice(["'", "Step", "the", "Type", "field"])), "", 2)
                .split("\n")
            )
        elif kind == 8:
            lines.insert(
                at,
                str(
                    rng.choice(
                        ["Press Enter", "Click the Submit button", "Done", "Uncheck the 'x' box"]
                    )
                ),
            )
    return "\n".join(lines)


def test_six_hundred_damaged_plans(forms):
    rng = np.random.default_rng(0)
    agent = {e.id: e.gold for e in open_task("forms", {"plan": "agent"}, Path()).examples("val")}
    examples = list(forms.examples("val"))
    plans, right = [], set()
    for number in range(600):
        example = examples[number % len(examples)]
        source = agent[example.id] if number % 5 == 0 else example.gold
        plans.append(
            (number, example, damaged(rng, source, examples[(number + 1) % len(examples)].gold))
        )

    def scored(plan: tuple[int, Any, str]) -> None:
        number, example, said = plan
        outcome, fair = forms.judge(example, said)
        assert 0 <= fair.total <= 1
        assert outcome.facts["submitted"] or fair.total == 0
        if fair.total == 1.0:
            right.add(number)

    assert most_work(scored, plans) < 5
    assert 0 < len(right) < 300, "some damage does no harm, most does"


ODD = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["", "\ud800", "9" * 400, "../../etc/passwd", "2026-13-45", "on"]),
)
LABELS = st.one_of(st.sampled_from([one.label for one in FORM.fields]), ODD)
ACTIONS = st.one_of(
    st.builds(Type, LABELS, ODD, st.booleans()),
    *(st.builds(kind, LABELS, ODD) for kind in (Select, Check, Uncheck, Attach)),
    st.builds(Submit, ODD),
)


@given(st.lists(ACTIONS, max_size=12))
@settings(max_examples=120, deadline=None)
def test_any_actions_come_to_facts(actions):
    result, _ = visit(FORM, *actions)
    assert len(result.attempts) == len(actions) + 1
    assert (
        0 <= score(expected(FormView(FORM), VALUES), Plan((*actions, Submit())), result).total <= 1
    )


@pytest.mark.parametrize("text_", HOSTILE)
def test_hostile_texts_earn_nothing(forms, text_):
    assert forms.judge(forms.examples("val")[0], text_)[1].total == 0


# -- the task --------------------------------------------------------------------------------------


def test_either_plan_language_is_judged_the_same(forms):
    for example in forms.examples("val")[:20]:
        view, values = forms.view_of(example), values_of(example.reference)
        assert forms.judge(example, write_gold(view, values, "agent"))[1].total == 1.0
        other = "pt" if view.form.language == "en" else "en"
        assert forms.judge(example, write_steps(plan_for(view, values), other))[1].total == 1.0


def test_outcomes_are_facts(forms):
    example = next(one for one in forms.examples("val") if one.stratum == "meeting-room")
    outcome, fair = forms.judge(
        example, "Type 'x' into the 'Room' field\nfrobnicate\nClick the Submit button"
    )
    assert outcome.how in {"steps", "steps+unread"}
    assert outcome.facts["submitted"] is False
    assert outcome.facts["posts"] == 0
    assert set(outcome.facts["failed"]) == {1, 2}
    assert fair.rubric == RUBRIC.identity
    assert RUBRIC.identity.startswith("forms-received/2+")
    outcome, _ = forms.judge(example, example.gold)
    assert outcome.facts["received"]["room"] == (example.reference["values"]["room"],)
    assert forms.rubric.startswith(RUBRIC.identity)
    assert forms.demonstration(example, 0) == example.gold


def test_a_broken_executor_is_a_counted_failure_and_not_a_reward(forms):
    class Broken:
        name, at_once = "broken", 0

        def run(self, case, plans):
            return [Failure(cause="browser", detail="it died") for _ in plans]

        def close(self):
            pass

    task = FormsTask(FormsOptions(records=10), Broken())
    outcome, fair, failure = judge_safely(task, task.examples("val")[0], "")
    assert (outcome.how, fair) == ("failed", None)
    assert failure.cause == "EpisodeFailed"
    assert "it died" in failure.detail
    assert task.judge_group(task.examples("val")[0], ["", ""]) == [failure] * 2


def test_a_group_is_judged_as_its_members_are(forms):
    example = forms.examples("val")[0]
    texts = [example.gold, "", "Click the Submit button"]
    together = forms.judge_group(example, texts)
    assert [fair.total for _, fair in together] == [
        forms.judge(example, one)[1].total for one in texts
    ]


def test_judging_is_fast(forms):
    """Five plans of twelve fields are no more than a unit of work; a thousand take about a
    second."""
    examples = [one for one in forms.examples("val") if len(forms.forms[one.stratum].fields) == 12]
    assert work(lambda: [forms.judge(one, one.gold) for one in examples]) < len(examples) / 5
