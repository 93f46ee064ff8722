"""Numbers as Brazilians write them, and texts that are no number or two."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.tasks.text.numbers import read_number

NUMBERS = {
    (): {"12": 12, "-12": -12, "4.5": 4.5, "1e-3": 0.001, "9" * 1_000: int("9" * 1_000)},
    ("decimal_comma",): {"4,5": 4.5, "0 , 8": 0.8, ",5": 0.5, "1,5e3": 1500.0},
    ("thousands",): {
        "1.234,56": 1234.56,
        "12.345.678,9": 12345678.9,
        "1.234.567": 1234567,
        "1,234.56": 1234.56,
    }
    | {"1,234,567": 1234567, "1\u202f234": 1234},
    ("thousands", "decimal_comma"): {"1 234,56": 1234.56},
    ("thousands", "currency"): {"R$ 1.234,56": 1234.56, "R$1.234": 1234},
    ("decimal_comma", "currency"): {
        "-R$ 10,00": -10.0,
        "R$ -10,00": -10.0,
        "10,50 €": 10.5,
        "89,90 reais": 89.9,
    },
    ("currency",): {"US$ 10.50": 10.5, "BRL 7": 7},
    ("decimal_comma", "percent"): {"12,5%": 12.5},
    ("percent",): {"12 %": 12},
    ("decimal_comma", "number_form"): {"+0,5": 0.5},
    ("number_form",): {"−3": -3, ".5": 0.5, "5.": 5.0, "007": 7, "1_000": 1000, "0x1F": 31},
    ("non_finite",): {"1e999": None, "9" * 5_000: None},
}


@pytest.mark.parametrize("repairs", NUMBERS, ids="+".join)
def test_numbers(repairs):
    for text, value in NUMBERS[repairs].items():
        number = read_number(text)
        assert number is not None, text
        assert (number.value, number.repairs) == (value, repairs)
        assert type(number.value) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "abc",
            "4,5/5",
            "3 a 5",
            "3-5",
            "10/05/2024",
            "2024-05-10",
            "12:30",
            "4,5 de 5",
            "3 dias",
            "1.2.3",
            "1,2,3",
        ),
        *(
            "1.23,45",
            "0.123,45",
            "R$ 1,234",
            "R$",
            "%",
            "-",
            "--5",
            "-R$-5",
            "1__0",
            "1_",
            "NaN",
            "1 234",
            "4,",
            "0x",
        ),
        *("1 2", "(10,00)", "1,5 mil", "1e", "1" + " " * 500 + "x"),
    ],
)
def test_what_is_no_number_or_more_than_one(text):
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("text", "plain", "quoted", "integer"),
    [
        # 1.234 is JSON's number; in quotes it may be a Brazilian's thousand; an integer can only be
        # that.
        ("1.234", 1.234, None, 1234),
        ("1,234", 1.234, 1.234, 1234),
        ("0.125", 0.125, 0.125, 0.125),
        ("12.34", 12.34, 12.34, 12.34),
    ],
)
def test_what_the_text_cannot_say_the_type_may(text, plain, quoted, integer):
    def value(**how: bool):
        number = read_number(text, **how)
        return number and number.value

    assert value() == plain
    assert value(quoted=True) == quoted
    assert value(quoted=True, integer=True) == integer


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15))
def test_a_decimal_comma_changes_nothing_else(value):
    text = repr(value).replace(".", ",")
    number = read_number(text)
    assert number is not None
    assert number.value == value


@given(st.integers(-(10**12), 10**12))
def test_money_is_read_back(cents):
    text = f"R$ {cents / 100:,.2f}".translate(str.maketrans(",.", ".,"))
    number = read_number(text)
    assert number is not None
    assert number.value is not None
    assert math.isclose(number.value, cents / 100, abs_tol=0.005)


@given(st.text(max_size=30))
def test_nothing_raises(text):
    for quoted in (False, True):
        for integer in (False, True):
            number = read_number(text, integer=integer, quoted=quoted)
            assert number is None or number.value is None or math.isfinite(number.value)
