from dataclasses import replace

from plumbline.evaluation.comparison import select_examples
from tests.reports.test_verdict import compared

MEDIAN = "near the median change"


def gains(values: list[float]) -> list[tuple[str, str, float]]:
    """What is picked where every answer earned 0.5 before."""
    found = compared([0.5] * len(values), [0.5 + value for value in values])
    return [
        (picked.after.id, picked.why, round(picked.gain, 6)) for picked in select_examples(found)
    ]


def test_the_rule():
    picked = gains([0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.0, 0.0, 0.0, -0.1, -0.2, -0.3])
    assert picked == [
        ("e0000", "largest gain", 0.5),
        ("e0001", "largest gain", 0.4),
        ("e0011", "largest loss", -0.3),
        ("e0010", "largest loss", -0.2),
        ("e0004", MEDIAN, 0.1),
        ("e0005", MEDIAN, 0.1),
        ("e0006", "unchanged failure", 0.0),
        ("e0007", "unchanged failure", 0.0),
        ("e0008", MEDIAN, 0.0),
        ("e0003", MEDIAN, 0.2),
    ]


def test_equal_candidates_go_by_id_and_kinds_without_candidates_are_filled_from_the_median():
    picked = gains([0.3] * 20)
    assert [name for name, _, _ in picked] == [f"e{i:04d}" for i in range(10)]
    assert [why for _, why, _ in picked] == ["largest gain"] * 2 + [MEDIAN] * 8


def test_a_right_answer_that_stays_right_is_no_failure():
    found = compared([1.0] * 5, [1.0] * 5)
    assert {picked.why for picked in select_examples(found)} == {MEDIAN}


def test_the_lowest_unchanged_failures_come_first():
    found = compared([0.9, 0.1, 0.5, 0.2, 0.9, 0.9, 0.9], [0.9, 0.1, 0.5, 0.2, 0.9, 0.9, 0.9])
    failures = [
        picked.after.id for picked in select_examples(found) if picked.why == "unchanged failure"
    ]
    assert failures == ["e0001", "e0003"]


def test_fewer_examples_than_places_show_each_once():
    assert sorted(name for name, _, _ in gains([0.1, -0.1, 0.0])) == ["e0000", "e0001", "e0002"]


def test_the_same_records_pick_the_same_examples_whatever_their_order():
    values = [((i * 37) % 50) / 100 for i in range(50)]
    found = compared([0.5] * 50, [0.5 + value for value in values])
    again = replace(found, pairs=found.pairs[::-1])
    assert [p.after.id for p in select_examples(found)] == [
        p.after.id for p in select_examples(again)
    ]
