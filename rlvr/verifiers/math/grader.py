"""Grade a completion: compare every answer that its turn states with the gold, and explain the verdict."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from rlvr.verifiers.completion_text import completion_text, own_turn, with_opened_think
from rlvr.verifiers.math.compare import compare
from rlvr.verifiers.math.context import is_retracted
from rlvr.verifiers.math.extraction import find_statements, without_intermediate_results
from rlvr.verifiers.math.numbers import Number, is_rounding, read_decimal_comma, read_number
from rlvr.verifiers.math.parsed_answer import Collection, ParsedAnswer, parts_of, terms_of
from rlvr.verifiers.math.parser import parse_answer
from rlvr.verifiers.math.prose import find_conclusion, has_label
from rlvr.verifiers.math.reference import Gold, algebra_workers, has_percent, quote, read_gold
from rlvr.verifiers.math.stated_answer import StatedAnswer

MAX_TURN_CHARACTERS = 5_000_000  # more than a context window of a million tokens
MAX_COMPARISONS = 3
DEADLINE_S = 2.0
# Part of the deadline that is reserved for killing the worker and for transport.
_MARGIN_S = 0.25


@dataclass(frozen=True)
class AnswerVerdict:
    """Verdict on one completion.

    Attributes:
        correct: True or False; None if the verifier failed (unreadable gold, no worker).
        extracted: the answer as the model wrote it; None if there is none.
        why: the reason, in one sentence.
        timed_out: whether it is wrong because the comparison exceeded the deadline or crashed the algebra.
    """

    correct: bool | None
    extracted: str | None
    why: str
    timed_out: bool = False

    def __bool__(self) -> bool:
        raise TypeError("A verdict is neither true nor false, because the verifier itself may fail. Use its .correct.")


def check_answer(
    completion: str | list[dict],
    gold: str,
    *,
    prose: bool = True,
    tolerance: float | None = None,
    ended: bool = True,
    think_opened: bool = False,
    deadline_s: float = DEADLINE_S,
) -> AnswerVerdict:
    """Check whether the completion's final answer is `gold`.

    Args:
        completion: the text, or a list of chat messages, of which the last assistant message is read.
        gold: the reference answer: a number, LaTeX with or without dollar signs, or a word or two. A whole solution
            may be given if it ends in `#### 18` or a box.
        prose: also accept answers that are not explicit (`####`, a box, an <answer> tag): "The answer is 18.",
            "A: 18", or a turn that is nothing but an answer.
        tolerance: relative: 0.01 also accepts numbers within 1 % of the gold. None compares exactly.
        ended: False for a completion that was cut off: a last sentence such as "Thus she has 18 eggs." may then be an
            intermediate result, and is not read.
        think_opened: whether the chat template has opened <think>, so that the completion begins with thoughts.
        deadline_s: limit of algebra on this answer, in seconds; an answer that exceeds it is wrong. Starting the
            workers, once a process, is not counted.

    Raises:
        ValueError: an option is out of its range.
    """
    return check_answers(
        [with_opened_think(completion) if think_opened else completion],
        [gold],
        prose=prose,
        tolerance=tolerance,
        ended=[ended],
        deadline_s=deadline_s,
    )[0]


def check_answers(
    completions: Sequence[str | list[dict]],
    golds: Sequence[str],
    *,
    prose: bool = True,
    tolerance: float | None = None,
    ended: Sequence[bool] | None = None,
    deadline_s: float = DEADLINE_S,
    budget_s: float | None = None,
) -> list[AnswerVerdict]:
    """Check a batch: the verdicts of `check_answer`, with algebra spread over several workers.

    Args:
        completions, golds: one each per row.
        ended: for each row, whether the completion ended by itself; None if all did.
        budget_s: limit of all algebra of the batch, in seconds; rows that are not reached get None. Default: one
            deadline for every four rows and worker, at least 10 s, so that expensive answers cannot delay a step for
            minutes.

    Raises:
        ValueError: the lists differ in length, or an option is out of its range.
    """
    if tolerance is not None and not 0 < tolerance < 1:
        raise ValueError(f"tolerance is {tolerance!r}, but should be between 0 and 1, or None for exact comparison")
    if not deadline_s > 0:
        raise ValueError(f"deadline_s is {deadline_s!r}, but should be positive")
    verdicts: dict[int, AnswerVerdict] = {}
    undecided: dict[int, _Comparison] = {}
    for row, (completion, gold) in enumerate(zip(completions, golds, strict=True)):
        whole = ended is None or ended[row]
        graded = _grade_without_algebra(completion, gold, prose, tolerance, whole)
        if isinstance(graded, AnswerVerdict):
            verdicts[row] = graded
        else:
            undecided[row] = graded
    if undecided:
        verdicts |= _grade_by_algebra(undecided, tolerance, deadline_s, budget_s)
    return [verdicts[row] for row in range(len(completions))]


@dataclass(frozen=True)
class _Comparison:
    """A comparison that needs algebra: `texts`, the answers of one turn, must all equal `gold`."""

    stated: str
    texts: tuple[str, ...]
    gold: str


def _grade_by_algebra(
    comparisons: dict[int, _Comparison], tolerance: float | None, deadline_s: float, budget_s: float | None
) -> dict[int, AnswerVerdict]:
    """Decide comparisons in the algebra workers; equal ones are sent once."""
    requests = list(dict.fromkeys((comparison.texts, comparison.gold) for comparison in comparisons.values()))
    pool = algebra_workers()
    if budget_s is None:
        budget_s = max(10.0, deadline_s * len(requests) / 4 / pool.processes)
    results = pool.map(
        [["equivalent", list(texts), gold, tolerance] for texts, gold in requests],
        timeout_s=max(deadline_s - _MARGIN_S, deadline_s / 2),
        batch_timeout_s=budget_s,
    )
    outcomes = dict(zip(requests, results, strict=True))
    verdicts: dict[int, AnswerVerdict] = {}
    for row, comparison in comparisons.items():
        outcome = outcomes[comparison.texts, comparison.gold]
        text, gold = comparison.stated, quote(comparison.gold)
        correct: bool | None = False
        if outcome.status == "done":
            text, correct = outcome.value or text, outcome.value is None
            why = f"{quote(text)} is {'' if correct else 'not '}{gold}, by algebra"
        elif outcome.status == "unavailable":
            correct, why = None, f"could not be compared with {gold}: {outcome.why}"
        elif outcome.status == "raised":
            why = f"{quote(text)} can't be computed with ({outcome.why})"
        else:
            why = f"{quote(text)} could not be compared with {gold}: {outcome.why}"
        timed_out = outcome.status not in ("done", "unavailable", "raised")
        verdicts[row] = AnswerVerdict(correct, text, why, timed_out)
    return verdicts


def _grade_without_algebra(
    completion: str | list[dict], gold: str, prose: bool, tolerance: float | None, ended: bool
) -> AnswerVerdict | _Comparison:
    """Return the verdict, or the comparison that decides it by algebra."""
    target = read_gold(gold) if isinstance(gold, str) else None
    if target is None or isinstance(target, str):
        named = quote(gold) if isinstance(gold, str) else f"{gold!r} ({type(gold).__name__})"
        return AnswerVerdict(None, None, f"the gold {named} can't be read: {target or 'it is no text'}")
    turn = own_turn(completion_text(completion))
    if len(turn) > MAX_TURN_CHARACTERS:
        return AnswerVerdict(False, None, f"the turn is longer than {MAX_TURN_CHARACTERS:,} characters")

    integer = _read_plain_last_line(turn)
    if integer is not None and tolerance is None and target.number is not None and not target.has_percent:
        return _grade_integer(integer, gold)

    first: StatedAnswer | None = None
    first_text = ""
    last_end = 0
    undecided: list[str] = []
    joined = isinstance(target.parsed, Collection)
    statements = find_statements(turn, prose=prose, joined=joined)
    if target.number is not None:  # an echo of the instruction states nothing
        statements = [
            one for one in statements if one.texts[0].isdigit() or not any(map(_PLACEHOLDER.fullmatch, one.texts))
        ]
    if not statements and prose and ended:
        statements = list(find_conclusion(turn))
    for statement in without_intermediate_results(turn, statements):
        result, text = _compare_statement(statement, target, tolerance)
        if result == "no claim":
            # An aside ("the answer is 15 gallons * 8 pints"), before the answer or without one.
            before = first is None or statement.start < first.start
            if before or not any(map(str.isdigit, text)):
                continue
        if result in ("wrong", "no claim"):
            if first is not None:
                text, why = first_text, f"two different final answers: {quote(first_text)} and {quote(text)}"
            elif statement.defect:
                why = f"{quote(text)} is no answer: {statement.defect}"
            elif isinstance(parse_answer(text), str):
                why = f"{quote(text)} is not one answer that can be read"
            else:
                why = f"{quote(text)} is not {quote(gold)}"
            return AnswerVerdict(False, text, why)
        if first is None:
            first, first_text = statement, text
        last_end = max(last_end, statement.end)
        if result == "undecided" and text not in undecided:
            undecided.append(text)
            if len(undecided) > MAX_COMPARISONS:
                break
    if first is None:
        return AnswerVerdict(False, None, "no final answer in the model's own turn")
    if is_retracted(turn[last_end:]):
        return AnswerVerdict(False, first_text, f"{quote(first_text)} is taken back later in the turn")
    if len(undecided) > MAX_COMPARISONS:
        why = f"over {MAX_COMPARISONS} different final answers, all of them expressions"
        return AnswerVerdict(False, first_text, why)
    if undecided:
        return _Comparison(first.texts[0], tuple(undecided), target.text)
    return AnswerVerdict(True, first_text, f"{quote(first_text)} is {quote(gold)}")


@lru_cache(maxsize=65536)  # a group's completions give few different answers
def _grade_integer(integer: str, gold: str) -> AnswerVerdict:
    target = read_gold(gold)
    assert not isinstance(target, str)
    right = int(integer.replace(",", "")) == target.number
    return AnswerVerdict(right, integer, f"'{integer}' is {'' if right else 'not '}{quote(gold)}")


# "N" or "[your number]", where a number is asked.
_PLACEHOLDER = re.compile(
    r"[\s*_`$\\({\[<]{0,8}(?:[A-Za-z]|(?<=[\[<{])(?:[a-z]{1,12} ){0,3}(?:number|answer|result|value))"
    r"[\s*_`$\\)}\]>.]{0,8}"
)
_PLAIN_LAST_LINE = re.compile(
    r"####[ ]?(?:The final answer is )?\$?(-?(?:[1-9][0-9]{0,2}(?:,[0-9]{3}){1,5}|[0-9]{1,18}))\.?\s*\Z"
)


def _read_plain_last_line(turn: str) -> str | None:
    """Return the integer of a turn whose only statement is a last line `#### 18`, as in most turns of training.

    This is a fast path: None where there may be another statement. The general way gives the same verdict in five times
    the time.
    """
    mark = turn.find("####")
    if mark < 0 or "<" in turn or "boxed" in turn or turn[mark - 1 : mark] == "#":
        return None
    if mark > 0 and turn[mark - 1] != "\n" and turn[mark - 2 : mark] != ". ":
        return None  # "not #### 18"
    last = _PLAIN_LAST_LINE.match(turn, mark)
    speaks_of_answer = any(turn.find(word, 0, mark) >= 0 for word in ("nswer", "Ans", "ANS"))
    return last[1] if last and not speaks_of_answer and not has_label(turn, mark) else None


# Of a statement. "undecided" is for algebra; "no claim" is neither right nor wrong, such as "the answer is simple".
_Result = Literal["right", "wrong", "undecided", "no claim"]
_RESULTS: dict[bool | None, _Result] = {True: "right", False: "wrong", None: "undecided"}


def _compare_statement(statement: StatedAnswer, gold: Gold, tolerance: float | None) -> tuple[_Result, str]:
    """Compare one statement with the gold; return the result and the reading that was compared."""
    whole = statement.texts[0]
    result: _Result = "wrong" if statement.is_explicit else "no claim"
    if statement.defect:
        return result, whole
    if whole == gold.written:
        return "right", whole
    if len(gold.words) == 1 and (choice := _CHOSEN.match(whole)):
        several = _OTHER_CHOICE.search(whole, choice.end())
        return _RESULTS[not several and (choice[1] or choice[2]) == gold.words], whole
    for text in statement.texts:
        number = read_number(text)
        if number is not None and not (gold.parsed.name and "=" in text):
            if gold.number is not None:
                equal: bool | None = _equal_numbers(number, gold, text, tolerance)
            else:
                parsed = parse_answer(text)
                assert not isinstance(parsed, str)
                equal = number == read_decimal_comma(gold.text) or compare(parsed, gold.parsed)
            return _RESULTS[equal], text
    if gold.number is not None and any(read_decimal_comma(text) == gold.number for text in statement.texts):
        return "right", whole
    text = whole
    for reading in statement.texts:
        parsed = parse_answer(reading)
        if isinstance(parsed, str):
            continue
        equal = compare(parsed, gold.parsed)
        if equal is True and not any(part.members for part in parts_of(parsed)):
            return "right", reading
        if equal is not False or (tolerance is not None and _are_numeric(parsed, gold.parsed)):
            result, text = "undecided", reading
        elif result == "no claim" and _rules_out(parsed, gold):
            result, text = "wrong", reading
    return result, text


# "(C) 42", "C) Paris", "option C": the letter is the answer where the gold is one.
_CHOSEN = re.compile(
    r"(?:\\(?:text|textbf|textrm|mathrm|mathbf)\s?\{|[\s*_$])*"
    r"(?:\(?([A-Z])[).:][*_]*(?:[\s}]|\\[ ,;!]|\\quad)|(?:[Oo]ption|[Cc]hoice) \(?([A-Z])\b)"
)
_OTHER_CHOICE = re.compile(r"\([A-Z]\)|(?<![A-Za-z])[A-Z][).:](?![A-Za-z0-9])|\b(?:or|not|wrong|incorrect)\b")


def _rules_out(answer: ParsedAnswer, gold: Gold) -> bool:
    """Whether a sentence with this answer contradicts the gold; "the answer is simple" does not."""
    if isinstance(answer, Collection):
        return gold.number is None or all(term.kind == "number" for term in terms_of(answer))
    if answer.kind == "words":
        return bool(gold.words)
    return answer.kind == "number" or gold.number is None


def _equal_numbers(number: Number, gold: Gold, text: str, tolerance: float | None) -> bool:
    assert gold.number is not None
    if number == gold.number or is_rounding(text, number, gold.number):
        return True
    # 50 % equals both 0.5 and "50": golds are written in both ways, and the sign tells which.
    percent = has_percent(text)
    if gold.has_percent != percent:
        exact = gold.number * 100 if percent else Fraction(gold.number, 100)
        if number == exact or is_rounding(text, number, exact):
            return True
    difference = abs(Fraction(number) - Fraction(gold.number))
    return tolerance is not None and difference <= Fraction(tolerance) * abs(Fraction(gold.number))


def _are_numeric(*answers: ParsedAnswer) -> bool:
    return all(term.kind in ("number", "math") for answer in answers for term in terms_of(answer))
