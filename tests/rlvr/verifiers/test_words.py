"""Words in any script."""

from __future__ import annotations

import pytest

from rlvr.verifiers.words import WORD


@pytest.mark.parametrize(
    ("text", "expected", "why"),
    [
        ("It's 3.14, or 1,000!", ["It", "s", "3.14", "or", "1,000"], "numbers in one piece"),
        ("x_1 += 2", ["x", "1", "2"], "names of a program are cut at signs and digits"),
        ("我们退款", ["我们", "退款"], "two characters a word"),
        ("a" * 30, ["a" * 24, "a" * 6], "no word is longer than 24 letters"),
        ("é e\u0301", ["é", "e\u0301"], "accents of both kinds"),
    ],
)
def test_words_in_any_script(text: str, expected: list[str], why: str) -> None:
    assert WORD.findall(text) == expected, why
