"""The benchmark as a task: its laws, both readings, both surfaces, splits, and a real browser."""

from collections import Counter

import pytest

from plumbline.api import check_task
from plumbline.errors import DataError, RecipeError
from plumbline.seeds import generator
from plumbline_browser.chromium import find_chromium, import_playwright
from plumbline_forms.build import deal
from plumbline_forms.formfactory.checkout import row_of

STUCK = {"A13-002", "A15-001", "B13-002"}
"""Examples of the layout with a value that nobody could enter."""


def test_laws(task):
    laws = check_task(task, "test")
    assert laws.oracle == 1.0
    assert laws.raised == ()
    assert all(
        laws.baselines[name] <= 0.05
        for name in ("blank", "submit-only", "type-after-submit", "success-text")
    )
    # of two records, one is a half
    assert all(laws.baselines[name] < 0.6 for name in ("constant", "shuffled-gold"))


def test_values_that_nobody_could_enter_count_in_the_strict_reading_only(task, examples):
    for name, example in examples.items():
        _, score = task.judge(example, example.gold)
        assert score.readings["fillable"] == score.total == 1.0, name
        assert (score.readings["strict"] < 1.0) == (name in STUCK), name


def test_a_field_that_nobody_could_fill_in_costs_nothing_in_the_fillable_reading(task, examples):
    example = examples["A15-001"]
    chosen = example.gold.replace(
        "Step 4", "Step 4: Select 'Fall 2030' from the 'Semester' field\nStep 5"
    )
    outcome, score = task.judge(example, chosen)
    assert outcome.facts["received"]["semester"] == ("Fall 2030",)
    assert score.total == 1.0
    assert score.readings["strict"] < 1.0


def test_a_wrong_value_costs_in_both(task, examples):
    example = examples["E12-001"]
    _, score = task.judge(example, example.gold.replace("Student", "Savings"))
    assert score.readings["fillable"] == score.readings["strict"] < 0.6


def test_a_stub_must_be_attached(task, examples):
    example = examples["F13-000"]
    assert example.reference["stubbed"] == ["bills"]
    assert "Bills: bills.pdf" in example.messages[-1]["content"]
    lines = [line for line in example.gold.splitlines() if "bills.pdf" not in line]
    assert len(lines) == len(example.gold.splitlines()) - 1
    outcome, score = task.judge(example, "\n".join(lines))
    assert not outcome.facts["submitted"]
    assert score.total == 0


def test_values_are_told_in_the_words_of_the_gold(examples):
    said = examples["B13-000"].messages[-1]["content"]
    assert "- Day: 2030/02/03\n" in said
    assert "- Billing Address: 1 Fern Way\nMossby\n" in said
    assert "- Time: 9AM\n" in said
    assert "Winter 2030" in examples["A15-001"].messages[-1]["content"]
    assert "broken" not in examples["D12-000"].messages[-1]["content"]


def test_documents(open_layout):
    task = open_layout(surface="document")
    found = {example.id: example for example in task.examples("test")}
    text = found["D12-001"].messages[-1]["content"]
    assert "Text 2 of D12 about slow.\n1. a point\n2. another one\n7. a last one\n" in text
    assert "Text 1 of" not in text
    assert "- Bills: bills.pdf" in found["F13-001"].messages[-1]["content"]
    assert all(task.judge(example, example.gold)[1].total == 1 for example in found.values())


def test_plans_of_browser_agents(open_layout):
    task = open_layout(plan="agent")
    assert all(task.judge(example, example.gold)[1].total == 1 for example in task.examples("test"))


def test_everything_is_test_unless_it_is_dealt(open_layout, task, examples):
    assert task.splits == ("test",)
    assert len(examples) == 18
    with pytest.raises(DataError, match="no split 'train'") as caught:
        task.examples("train")
    assert "80-10-10" in caught.value.fix
    dealt = open_layout(splits="80-10-10")
    assert dealt.splits == ("train", "val", "test")
    # Forms of two or three records have none to spare.
    assert {example.id for example in dealt.examples("train")} == set(examples)
    with pytest.raises(DataError, match=r"split val .* empty"):
        dealt.examples("val")


@pytest.mark.parametrize("splits", ["test-only", "80-10-10"])
def test_forms_are_held_out_whole(open_layout, examples, splits):
    """Every record of a form that is held out is in that split, and none of it in another."""
    task = open_layout(splits=splits, held_out=["A15"])
    name = row_of("A15").name
    assert task.splits == (
        *(("test",) if splits == "test-only" else ("train", "val", "test")),
        "held-out-forms",
    )
    held_out = task.examples("held-out-forms")
    assert (
        {one.id for one in held_out}
        == {key for key, one in examples.items() if one.stratum == name}
        != set()
    )
    seen = task.examples("test" if splits == "test-only" else "train")
    assert {one.id for one in seen} == set(examples) - {one.id for one in held_out}


@pytest.mark.parametrize(("records", "sizes"), [(50, (40, 5, 5)), (40, (32, 4, 4))])
def test_the_deal(records, sizes):
    one, other = (
        deal(range(records), generator(42, "formfactory", "split", name)) for name in ("A11", "A13")
    )
    assert tuple(len(one[split]) for split in ("train", "val", "test")) == sizes
    assert sorted(index for members in one.values() for index in members) == list(range(records))
    assert one["test"] != other["test"]


def test_the_same_options_give_the_same_examples(open_layout, task):
    again = open_layout().examples("test")
    assert [(one.id, one.gold, one.messages) for one in again] == [
        (one.id, one.gold, one.messages) for one in task.examples("test")
    ]


def test_figures(task, examples):
    references = [example.reference for example in examples.values()]
    levels = Counter(
        level
        for reference in references
        for name, level in reference["levels"].items()
        if task.forms[reference["form"]].by_name[name].kind == "select"
    )
    assert levels == {"exact": 5, "folded": 2, "alias": 3, "bucket": 4, "unfillable": 2}
    flags = {"unfillable": 3, "unplaced": 3, "stubbed": 2, "ported": 2}
    assert flags == {flag: sum(bool(reference[flag]) for reference in references) for flag in flags}
    sent = {
        name: sum(
            task.judge(example, answer)[1].parts["submitted"] or 0
            for example, answer in zip(
                examples.values(), task.baselines[name](list(examples.values())), strict=True
            )
        )
        for name in ("blank", "submit-only")
    }
    assert sent == {"blank": 0, "submit-only": 16}  # all but the form with required fields


@pytest.mark.parametrize("executor", ["browser", "in-page"])
def test_a_browser_gets_the_same_submissions(open_layout, task, examples, executor):
    try:
        import_playwright()
        find_chromium()
    except RecipeError as error:
        pytest.skip(str(error))
    there = open_layout(executor=executor)
    try:
        for example in (example for name, example in examples.items() if name.endswith("-000")):
            outcome, score = there.judge(example, example.gold)
            assert score.total == 1.0, (example.id, outcome.facts)
            assert (
                outcome.facts["received"] == task.judge(example, example.gold)[0].facts["received"]
            )
    finally:
        there.executor.close()


def test_labels_by_place_are_the_forms_labels(task, examples):
    view = task.view_of(examples["E12-000"])
    assert view.form is task.forms["account-opening"]
    assert view.form.by_name["accountType"].label == "Account Type"


def test_stars_are_no_part_of_a_label(task):
    fields = task.forms["workshop-registration"].by_name
    assert (fields["day"].label, fields["ok"].label) == ("Day", "I agree")
