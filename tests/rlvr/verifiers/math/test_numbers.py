"""One number, read exactly or not at all."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.verifiers.math.numbers import format_number, read_number
from rlvr.verifiers.math.sums import compute
from tests.support.cases import cases


@pytest.mark.parametrize(
    ("text", "value", "why"),
    [
        ("–18", -18, "an en dash, as word processors make of a minus"),
        ("- 18", -18, "a minus with a space, as LaTeX writers do"),
        ("+7", 7, "a plus"),
        ("1\u202f000", 1000, "a thin space as separator"),
        ("1\\,234", 1234, "a LaTeX thin space as separator"),
        ("70{,}000", 70000, "a LaTeX comma as separator"),
        ("1_000", 1000, "an underscore as separator"),
        (".5", Fraction(1, 2), "no digit before the point"),
        ("18.", 18, "a full stop"),
        ("-$18", -18, "minus before the currency sign"),
        ("$-18", -18, "minus behind the currency sign"),
        ("US$18", 18, "a currency with its country"),
        ("\\$18", 18, "an escaped currency sign"),
        ("$18$", 18, "mathematics in dollar signs"),
        ("\\(18\\)", 18, "mathematics in LaTeX brackets"),
        ("50.0\\%", 50, "an escaped percent sign"),
        ("18 dollars", 18, "a unit"),
        ("18 apples per day", 18, "a unit of several words"),
        ("60 km/h", 60, "a unit with a slash"),
        ("60km", 60, "a unit without a space"),
        ("12 cm^2", 12, "a unit with a power"),
        ("12 m²", 12, "a unit with a power in one character"),
        ("18 piñatas", 18, "a unit with an accent"),
        ("18\\text{ dollars}", 18, "a unit in LaTeX"),
        ("90^\\circ", 90, "degrees in LaTeX"),
        ("**18**", 18, "bold"),
        ("`18`", 18, "code"),
        ("１８", 18, "full-width digits"),
        ("5/2", Fraction(5, 2), "a fraction"),
        ("\\frac{5}{2}", Fraction(5, 2), "a LaTeX fraction"),
        ("\\dfrac12", Fraction(1, 2), "a LaTeX fraction without braces"),
        ("½", Fraction(1, 2), "a fraction in one character"),
        ("2½", Fraction(5, 2), "a mixed number in one character, which NFKC would make 21/2"),
        ("2 1/2", Fraction(5, 2), "a mixed number"),
        ("2 and 1/2", Fraction(5, 2), "a mixed number in words"),
        ("4.2e1", 42, "a power of ten"),
        ("4.2 \\times 10^{1}", 42, "a power of ten in LaTeX"),
        ("4.2 x 10^1", 42, "a power of ten with a letter x"),
        ("42e3", 42000, "a power of ten is not dropped"),
        ("42 thousand", 42000, "a scale in words"),
        ("$42k", 42000, "a scale in one letter"),
        ("x = 42", 42, "the right side of an equation"),
        ("6 * 7 = 42", 42, "the result of a sum"),
        ("6 × 7 = 42 eggs", 42, "the result of a sum with a unit"),
    ],
)
def test_reads(text: str, value: int | Fraction, why: str) -> None:
    assert read_number(text) == value, why


@pytest.mark.parametrize(("text", "why"), cases(__file__, "not numbers"))
def test_leaves(text: str, why: str) -> None:
    assert read_number(text) is None, why


@given(st.integers(min_value=-(10**40), max_value=10**40))
def test_an_integer_reads_as_itself_in_every_notation(number: int) -> None:
    for text in (
        f"{number}",
        f"{number:,}",
        f"${number:,}",
        f"{number}.00",
        f"{number:,}".replace(",", " "),
        f"{number}%",
    ):
        assert read_number(text) == number
    assert read_number(str(number).replace("-", "−")) == number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**12), max_value=10**12))
def test_a_decimal_reads_as_itself_exactly(number: Decimal) -> None:
    assert read_number(f"{number:f}") == Fraction(number)
    assert read_number(f"{number:,f}") == Fraction(number)


@given(st.fractions(max_denominator=10**9))
def test_the_plain_notation_reads_back_as_the_same_number(number: Fraction) -> None:
    assert read_number(format_number(number)) == number or abs(number.numerator) >= 10**18


@given(st.text(max_size=300))
def test_no_text_raises(text: str) -> None:
    read_number(text)


@given(st.text(alphabet="0123456789.,-+/%$ eExk=*^{}\\()½²−￼", max_size=60))
def test_no_text_that_looks_like_numbers_raises(text: str) -> None:
    read_number(text)


@pytest.mark.parametrize(
    ("text", "value", "why"),
    [
        ("47*38", 1786, "a product"),
        ("1/3 + 1/6", Fraction(1, 2), "fractions"),
        ("7", 7, "one digit"),
        ("(((1/9^64)^64)^64)^32", None, "powers whose denominator would have millions of digits"),
        ("9^64^64", None, "an exponent that is too large"),
        ("1e999999999", None, "no plain number"),
        ("1/0", None, "no value"),
        ("7 // 2", None, "an operator that it has not"),
        ("+".join("1" * 100), None, "too long"),
    ],
)
def test_a_sum_is_computed_exactly_or_not_at_all(text: str, value: Fraction | None, why: str) -> None:
    assert compute(text) == value, why
