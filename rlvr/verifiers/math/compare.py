"""Compare two parsed answers without algebra.

Numbers are compared exactly, other terms by their canonical spelling. The result is None if two different spellings may
mean the same: then symbolic.py decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations

from rlvr.verifiers.math.complexity_guard import UNEVALUATED, VARIABLE
from rlvr.verifiers.math.numbers import BASED, is_rounding, read_numeral
from rlvr.verifiers.math.parsed_answer import Collection, ParsedAnswer, Term

# Whether two terms are equal; None if only algebra can tell.
TermComparison = Callable[[Term, Term], bool | None]


# A difference or a quotient of whole numbers is no reference answer, so this is a date, a score, a range or the like.
_DATE_OR_RANGE = re.compile(r"\+?[0-9]+(?:-[0-9]+)+|[0-9]+(?:/[0-9]+){2,}")


def compare_terms(answer: Term, gold: Term) -> bool | None:
    """Compare two terms; None if only algebra can tell."""
    if answer.number is not None and gold.number is not None:
        return answer.number == gold.number or is_rounding(answer.text, answer.number, gold.number)
    if answer.text == gold.text:
        return True
    if _DATE_OR_RANGE.fullmatch(gold.text):
        return False
    if (based := BASED.fullmatch(gold.text)) and not BASED.fullmatch(answer.text):
        return answer.text == based[1]  # the base of 204_5 may be left out, like a unit
    if based := BASED.fullmatch(answer.text):
        # It may be added to two or more digits of that base.
        return gold.text == based[1] and len(gold.text) > 1 and read_numeral(based) is not None
    kinds = {answer.kind, gold.kind}
    if "words" in kinds:
        words = answer if answer.kind == "words" else gold
        return None if kinds == {"words", "math"} and len(words.text) == 1 else False
    if UNEVALUATED.search(answer.text) and not UNEVALUATED.search(gold.text):
        return False  # the problem, not its answer
    if "number" in kinds and VARIABLE.search(answer.text + " " + gold.text):
        # A number and an expression with an unknown; i and e are constants, the k of a sum is bound.
        letters = set(re.findall(r"(?<![\\a-zA-Z])[a-zA-Z]", answer.text + " " + gold.text))
        if not letters <= {"i", "e"} and not UNEVALUATED.search(answer.text + " " + gold.text):
            return False
    if (
        kinds == {"relation"}
        and is_simple_bound(gold)
        and not is_simple_bound(answer)
        and _TO_BE_SOLVED.search(answer.text)
    ):
        return False
    # "y = 2x + 3" is a relation although it has a name.
    return False if "relation" in kinds and len(kinds) == 2 and not (answer.name or gold.name) else None


_RELATION_SIGN = re.compile(r"\\leq|\\geq|\\neq|<|>")
_ABSOLUTE_BOUND = re.compile(r"\|[a-zA-Z](?:[-+][0-9.]+)?\|(?:<|>|\\leq|\\geq)[0-9.]+")
_TO_BE_SOLVED = re.compile(r"[\^|(]|\\(?:sqrt|frac|log|ln)(?![a-z])")


def is_simple_bound(term: Term) -> bool:
    """Whether a term is x < a, a < x < b or the like: one unknown between bounds, nothing to be solved."""
    if term.kind != "relation":
        return False
    sides = [side.strip() for side in _RELATION_SIGN.split(term.text)]
    unknowns = [place for place, side in enumerate(sides) if VARIABLE.search(side)]
    if len(unknowns) != 1 or not re.fullmatch(
        r"[a-zA-Z](?:_[a-zA-Z0-9])?|\\[a-z]{2,8}|[a-z]\([a-z]\)", sides[unknowns[0]]
    ):
        return False
    return len(sides) == 2 or (len(sides) == 3 and unknowns[0] == 1)


def compare(answer: ParsedAnswer, gold: ParsedAnswer, equal: TermComparison = compare_terms) -> bool | None:
    """Compare an answer with the gold; None if only algebra can tell.

    Names ("x = …") count if both have one. A list has no order, a tuple has. A list and a tuple in round brackets are
    compared in the order as written. A matrix of one column is a tuple.
    """
    if answer.name and gold.name and not _same_name(answer.name, gold.name):
        return False
    if isinstance(answer, Term) and isinstance(gold, Term):
        return equal(answer, gold)
    if isinstance(answer, Collection) and isinstance(gold, Collection):
        return _compare_groups(answer, gold, equal)
    if isinstance(answer, Collection) and answer.kind in ("list", "set"):
        answer = replace(answer, items=_distinct(answer.items))
    term, group = (answer, gold) if isinstance(answer, Term) else (gold, answer)
    assert isinstance(term, Term) and isinstance(group, Collection)
    if len(group.items) == 1 and group.kind in ("set", "list"):
        one = group.items[0]
        return compare(one, gold, equal) if group is answer else compare(answer, one, equal)
    if term.kind == "math" and group.kind == "matrix":
        return None  # perhaps a sum of matrices
    # -2 <= x <= 7 equals [-2, 7]; x > 3 may equal a union, and so does a gold |x| > 3.
    is_bound = is_simple_bound(term) or (term is gold and _ABSOLUTE_BOUND.fullmatch(term.text))
    return None if is_bound and group.kind in ("tuple", "union") else False


def _same_name(one: str, other: str) -> bool:
    """Compare names; f(x) equals f(n), since the argument's name has no meaning."""
    one, other = (re.sub(r"\(.*\)|[{}]", "", name) for name in (one, other))
    return one == other


def _compare_groups(answer: Collection, gold: Collection, equal: TermComparison) -> bool | None:
    kinds = (answer.kind, gold.kind)
    if kinds in (("tuple", "tuple"), ("matrix", "matrix")):
        if answer.brackets != gold.brackets and {answer.brackets, gold.brackets} != {"][", "()"}:
            return False
        return _in_order(answer.items, gold.items, equal)
    if "matrix" in kinds and "tuple" in kinds:
        matrix, other = (answer, gold) if answer.kind == "matrix" else (gold, answer)
        column = _column(matrix)
        if column is None or other.brackets not in ("()", "[]"):
            return False
        return _in_order(column, gold.items, equal) if matrix is answer else _in_order(answer.items, column, equal)
    if kinds == ("union", "union"):
        return _any_order(answer.items, gold.items, equal) or None  # (0, 2) equals (0, 1] and (1, 2), too
    if set(kinds) == {"union", "tuple"}:
        return None
    if set(kinds) <= {"list", "set"}:
        if kinds != ("set", "set") and all(item.name for item in (*answer.items, *gold.items)):
            return _any_order(answer.items, gold.items, equal)
        return _any_order(_distinct(answer.items), _distinct(gold.items), equal)
    if set(kinds) == {"list", "tuple"}:
        names = [item.name for item in (answer if answer.kind == "list" else gold).items]
        is_sorted = not all(names) or names == sorted(names)  # unlike "y = 2, x = 3" for (2, 3)
        if is_sorted and "()" in (answer.brackets, gold.brackets):
            return _in_order(answer.items, gold.items, equal)
    return False


def _column(matrix: Collection) -> tuple[ParsedAnswer, ...] | None:
    """Return the entries of a matrix with one column or one row."""
    rows = [row.items for row in matrix.items if isinstance(row, Collection)]
    if all(len(row) == 1 for row in rows):
        return tuple(row[0] for row in rows)
    return rows[0] if len(rows) == 1 else None


def _distinct(items: Sequence[ParsedAnswer]) -> tuple[ParsedAnswer, ...]:
    """Remove repeated values."""
    kept: list[ParsedAnswer] = []
    for item in items:
        if not any(compare(item, other) is True for other in kept):
            kept.append(item)
    return tuple(kept)


def _in_order(answer: Sequence[ParsedAnswer], gold: Sequence[ParsedAnswer], equal: TermComparison) -> bool | None:
    if len(answer) != len(gold):
        return False
    results = []
    for one, other in zip(answer, gold, strict=True):
        results.append(compare(one, other, equal))
        if results[-1] is False:
            return False
    return None if None in results else True


def _any_order(answer: Sequence[ParsedAnswer], gold: Sequence[ParsedAnswer], equal: TermComparison) -> bool | None:
    if len(answer) != len(gold):
        return False
    left = list(gold)
    unsure: list[ParsedAnswer] = []
    for item in answer:
        match = next((index for index, other in enumerate(left) if compare(item, other, equal) is True), None)
        if match is None:
            unsure.append(item)
        else:
            left.pop(match)
    if not unsure:
        return True
    if len(unsure) > 6:
        return None
    for order in permutations(left):
        if all(compare(item, other, equal) is not False for item, other in zip(unsure, order, strict=True)):
            return None
    return False
