"""The comparison of results, against brute force over all permutations and by hand."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline_commerce.sql_qa.gold import Tie, is_near, matches, normalise_rows
from tests.work import work

VALUES = st.sampled_from([None, 0, 1, 2, 1.0, 1.004, 2.5, 2.503, "a", "b", b"a"])
"""Values of which those that are near one another are all near one another."""


def whole(rows):
    return [Tie(tuple(rows), len(rows))] if rows else []


def same(rows, gold):
    return matches(rows, whole(gold), ordered=False)


def by_brute_force(rows, ties, *, ordered):
    """All column orders, all row orders, all choices at the boundaries."""
    if len(rows) != sum(tie.take for tie in ties):
        return False
    if not rows:
        return True
    wide = len(ties[0].rows[0])
    if len(rows[0]) != wide:
        return False
    choices = [list(itertools.permutations(tie.rows, tie.take)) for tie in ties]
    for columns in itertools.permutations(range(wide)):
        mine = [tuple(row[at] for at in columns) for row in rows]
        for chosen in itertools.product(*choices):
            gold = [row for part in chosen for row in part]
            orders = [gold] if ordered else itertools.permutations(gold)
            if any(
                all(map(is_near, itertools.chain(*mine), itertools.chain(*order)))
                for order in orders
            ):
                return True
    return False


@st.composite
def results(draw):
    """A gold result with ties, and one that is like it or not."""
    wide = draw(st.integers(1, 3))
    rows = st.lists(st.tuples(*[VALUES] * wide), min_size=1, max_size=3)
    ties = [Tie(tuple(draw(rows)), 1) for _ in range(draw(st.integers(1, 2)))]
    ends = {0, len(ties) - 1}
    ties = [
        Tie(tie.rows, draw(st.integers(1, len(tie.rows))) if at in ends else len(tie.rows))
        for at, tie in enumerate(ties)
    ]
    columns = draw(st.permutations(range(wide)))
    rows = [
        tuple(row[at] for at in columns)
        for tie in ties
        for row in draw(st.permutations(tie.rows))[: tie.take]
    ]
    if draw(st.booleans()):
        at = draw(st.integers(0, len(rows) - 1))
        rows[at] = draw(st.tuples(*[VALUES] * wide))
    if draw(st.booleans()):
        rows = draw(st.permutations(rows))
    return rows, ties


@settings(max_examples=200, deadline=None)
@given(results(), st.booleans())
def test_agrees_with_all_permutations(result, ordered):
    rows, ties = result
    if not ordered and sum(tie.take < len(tie.rows) for tie in ties) > 1:
        return  # which of two boundaries a row is from is left open there
    assert matches(rows, ties, ordered=ordered) == by_brute_force(rows, ties, ordered=ordered)


NEAR = [
    *(
        (None, None),
        (3, 3.0),
        (3, 3.005),
        (0.5, 0.502),
        (0.25, 0.25),
        (0.02384, 0.0238),
        (0.0, 1e-17),
    ),
    *(
        (0.00008, 0.00008125),
        (0.00514, 0.0051),
        (20000.0, 20001),
        (4.0833, 4.08),
        (2**62, float(2**62)),
    ),
    (float("inf"), float("inf")),
]
FAR = [
    *(
        (None, 0),
        (None, ""),
        (3, 3.009),
        (0.5, 0.51),
        (0.02384, 0.02),
        (0.004, 0.0),
        (0.00008, 0.0),
        (0.0034, 0.0035),
    ),
    *(
        (0.00008, 0.00012),
        (-0.00008, 0.00008),
        (20000, 20001),
        (20000.0, 20003),
        (4.0833, 4.1),
        (-2.0, 2.0),
    ),
    *((float("inf"), 1.0), ("a", "A"), ("1.5", 1.5), (2**62, 2**62 + 1)),
]


@pytest.mark.parametrize(
    ("pair", "equal"), [*((pair, True) for pair in NEAR), *((pair, False) for pair in FAR)]
)
def test_values_that_are_near(pair, equal):
    assert is_near(*pair) == is_near(*reversed(pair)) == equal


def test_rounded_means_of_many_groups_are_paired_by_their_group():
    """Each is nearer to another group's mean than to its own."""
    gold = [("SP", 4.0812), ("RJ", 4.0791), ("MG", 4.0849)]
    assert same([("MG", 4.08), ("SP", 4.08), ("RJ", 4.08)], gold)
    assert same([(4.08,), (4.08,), (4.08,)], [(value,) for _, value in gold])
    assert not same([("SP", 4.08), ("RJ", 4.08), ("MG", 4.1)], gold)


def test_any_of_the_rows_that_tie_at_the_boundary_may_be_taken():
    ties = [Tie((("SP", 9),), 1), Tie((("RJ", 5), ("MG", 5), ("BA", 5)), 2)]
    for ordered in (True, False):
        assert matches([("SP", 9), ("BA", 5), ("MG", 5)], ties, ordered=ordered)
        assert not matches([("SP", 9), ("BA", 5), ("BA", 5)], ties, ordered=ordered)
        assert not matches([("RJ", 5), ("BA", 5), ("MG", 5)], ties, ordered=ordered)
        assert not matches([("SP", 9), ("BA", 5), ("PR", 5)], ties, ordered=ordered)
    assert matches([("BA", 5), ("SP", 9), ("MG", 5)], ties, ordered=False)
    assert not matches([("BA", 5), ("SP", 9), ("MG", 5)], ties, ordered=True)


def test_a_part_of_a_date_is_a_number_in_its_own_column_and_width():
    rows = [("2017", "02", "São Paulo", "0131", "010")]
    assert normalise_rows(rows, (4, 2, 0, 0, 2)) == ((2017, 2, "São Paulo", "0131", "010"),)
    assert normalise_rows(rows, (0,) * 5) == (*rows,)
    gold = [Tie(((7, "07"), (8, "08")), 2)]
    for rows, right in (
        ([("08", "08"), ("07", "07")], True),
        ([("08", 8), ("07", 7)], True),
        ([(7, 7), (8, 8)], False),
        ([("7", "07"), ("8", "08")], False),
    ):
        assert matches(rows, gold, ordered=False, cuts=(2, 0)) == right, rows


def test_wide_and_long_results_take_no_exponential_time():
    """Even and odd bit strings agree on every choice of columns but all, so only trying tells them
    apart."""
    strings = list(itertools.product((0, 1), repeat=10))
    even, odd = ([row for row in strings if sum(row) % 2 == parity] for parity in (0, 1))
    floats = [(0.01 * (row % 7), 0.01 * (row % 5), 0.01 * (row % 3)) for row in range(2000)]
    others = [(0.01 * (row % 3), 0.01 * (row % 7), 0.01 * (row % 4)) for row in range(2000)]

    def compared() -> None:
        assert not same(odd, even)
        assert same(even[::-1], even)
        same(floats, others)

    assert work(compared, tries=1) < 500
