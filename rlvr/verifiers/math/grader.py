"""The check itself: every statement of a turn against the gold, and how that came about, for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from rlvr.verifiers.completion_text import completion_text, own_turn, without_thinking
from rlvr.verifiers.math.compare import compare
from rlvr.verifiers.math.context import taken_back_later
from rlvr.verifiers.math.extraction import Statement, statements
from rlvr.verifiers.math.numbers import Number, plain_number, read_decimal_comma, read_number
from rlvr.verifiers.math.parser import Form, Group, Term, read_form, terms_of
from rlvr.verifiers.math.reference import Gold, has_percent, read_gold, shown, workers

MAX_TURN_CHARACTERS = 100_000
MAX_QUESTIONS = 3
DEADLINE_S = 2.0
# Of the deadline, so much is left for killing the worker and for the way there and back.
_MARGIN_S = 0.25


@dataclass(frozen=True)
class AnswerVerdict:
    """What the verifier found in one completion.

    Attributes:
        correct: True or False; None if it can't be said through no fault of the model's (the gold can't be read, or the
            workers failed).
        extracted: the answer as the model wrote it, None where there is none.
        why: one sentence for a person who asks why this completion got its score.
        timed_out: whether it is wrong because comparing it took longer than the deadline, or crashed the algebra.
    """

    correct: bool | None
    extracted: str | None
    why: str
    timed_out: bool = False


def check_answer(
    completion: str | list[dict],
    gold: str,
    *,
    prose: bool = True,
    tolerance: float | None = None,
    deadline_s: float = DEADLINE_S,
) -> AnswerVerdict:
    """Whether the completion's final answer is `gold`.

    Args:
        completion: the text, or a chat completion: a list of messages, of which the last assistant message is read.
        gold: the right answer: a number, a LaTeX expression with or without dollar signs, or a word or two. A whole
            solution is read too if it ends in `#### 18` or a box.
        prose: whether anything but an explicit answer (`####`, a box, an <answer> tag) counts: "The answer is 18.", or
            a turn that is nothing but an answer.
        tolerance: relative: 0.01 also accepts numbers that differ from the gold by 1 % of it. None compares exactly.
        deadline_s: seconds after which algebra on this answer is given up, and the answer wrong. Starting the workers,
            once a process, is not counted.

    Raises:
        ValueError: an option is out of its range.
    """
    _check_options(tolerance, deadline_s)
    found = _check(completion, gold, prose, tolerance)
    if isinstance(found, AnswerVerdict):
        return found
    verdicts: list[AnswerVerdict | None] = [None]
    _answer_by_algebra(verdicts, {0: found}, tolerance, deadline_s, None)
    assert verdicts[0] is not None  # every question gets an answer
    return verdicts[0]


def check_answers(
    completions: Sequence[str | list[dict]],
    golds: Sequence[str],
    *,
    prose: bool = True,
    tolerance: float | None = None,
    deadline_s: float = DEADLINE_S,
    budget_s: float | None = None,
) -> list[AnswerVerdict]:
    """`check_answer` for a batch: the same verdicts, with algebra spread over several workers.

    Args:
        completions, golds: one each per row.
        budget_s: seconds for all algebra of the batch; rows that are not reached in it get None. By default a deadline
            for every four rows and worker, but 10 s at least: bombs in every row can't hold up a step for minutes.

    Raises:
        ValueError: the lists differ in length, or an option is out of its range.
    """
    if len(completions) != len(golds):
        raise ValueError(f"there are {len(completions)} completions, but {len(golds)} golds")
    _check_options(tolerance, deadline_s)
    verdicts: list[AnswerVerdict | None] = []
    open_questions: dict[int, tuple[Statement, str, list[str]]] = {}
    for row, (completion, gold) in enumerate(zip(completions, golds, strict=True)):
        found = _check(completion, gold, prose, tolerance)
        if isinstance(found, AnswerVerdict):
            verdicts.append(found)
        else:
            verdicts.append(None)
            open_questions[row] = found
    if open_questions:
        _answer_by_algebra(verdicts, open_questions, tolerance, deadline_s, budget_s)
    return [verdict for verdict in verdicts if verdict is not None]


def _check_options(tolerance: float | None, deadline_s: float) -> None:
    if tolerance is not None and not 0 < tolerance < 1:
        raise ValueError(f"tolerance is {tolerance!r}, but should be between 0 and 1, or None for exact comparison")
    if not deadline_s > 0:
        raise ValueError(f"deadline_s is {deadline_s!r}, but should be positive")


def _answer_by_algebra(
    verdicts: list[AnswerVerdict | None],
    questions: dict[int, tuple[Statement, str, list[str]]],
    tolerance: float | None,
    deadline_s: float,
    budget_s: float | None,
) -> None:
    """Fills in the verdicts that need algebra; each different question is asked once."""
    asked = list(dict.fromkeys((tuple(texts), gold) for _, gold, texts in questions.values()))
    pool = workers()
    if budget_s is None:
        budget_s = max(10.0, deadline_s * len(asked) / 4 / pool.processes)
    outcomes = pool.map(
        [["equivalent", list(texts), gold, tolerance] for texts, gold in asked],
        timeout_s=max(deadline_s - _MARGIN_S, deadline_s / 2),
        batch_timeout_s=budget_s,
    )
    known = dict(zip(asked, outcomes, strict=True))
    for row, (first, gold, texts) in questions.items():
        outcome = known[tuple(texts), gold]
        text = first.texts[0]
        if outcome.status == "done":
            different = outcome.value["different"]
            text = text if different is None else different
            why = f"{shown(text)} is {'' if different is None else 'not '}{shown(gold)}, by algebra"
            verdicts[row] = AnswerVerdict(different is None, text, why)
        elif outcome.status == "unavailable":
            verdicts[row] = AnswerVerdict(None, text, f"could not be compared with {shown(gold)}: {outcome.why}")
        elif outcome.status == "failed":
            verdicts[row] = AnswerVerdict(False, text, f"{shown(text)} can't be computed with ({outcome.why})")
        else:
            why = f"{shown(text)} could not be compared with {shown(gold)}: {outcome.why}"
            verdicts[row] = AnswerVerdict(False, text, why, timed_out=True)


def _check(
    completion: str | list[dict], gold: str, prose: bool, tolerance: float | None
) -> AnswerVerdict | tuple[Statement, str, list[str]]:
    """The verdict, or what algebra must find equal for it: (the first statement, the gold, the texts)."""
    target = read_gold(gold) if isinstance(gold, str) else None
    if target is None or isinstance(target, str):
        what = shown(gold) if isinstance(gold, str) else f"{gold!r} ({type(gold).__name__})"
        return AnswerVerdict(None, None, f"the gold {what} can't be read: {target or 'it is no text'}")
    turn = own_turn(completion_text(completion))
    if len(turn) > MAX_TURN_CHARACTERS:
        return AnswerVerdict(False, None, f"the turn is longer than {MAX_TURN_CHARACTERS:,} characters")

    stated = _lone_number(turn)
    if stated is not None and tolerance is None and target.number is not None and not target.has_percent:
        return _number_verdict(stated, gold)

    first: Statement | None = None
    first_text = ""
    last_end = 0
    questions: list[str] = []
    for statement in statements(turn, prose=prose, joined=target.is_several):
        result, text = _judge(statement, target, tolerance)
        if result is _NOTHING_SAID:
            # Said in passing ("the answer is 15 gallons * 8 pints"), before the answer or without one.
            before = first is None or statement.start < first.start
            if not statement.explicit and (before or not any(character.isdigit() for character in text)):
                continue
            result = False
        if result is False:
            if first is not None:
                why = f"two different final answers: {shown(first_text)} and {shown(text)}"
                return AnswerVerdict(False, first_text, why)
            why = f"{shown(text)} is not {shown(gold)}"
            if statement.spoiled:
                why = f"{shown(text)} is no answer: {statement.spoiled}"
            elif not _is_readable(text):
                why = f"{shown(text)} is not one answer that can be read"
            return AnswerVerdict(False, text, why)
        if first is None:
            first, first_text = statement, text
        last_end = max(last_end, statement.end)
        if result is None and text not in questions:
            questions.append(text)
    if first is None:
        return AnswerVerdict(False, None, "no final answer in the model's own turn")
    if taken_back_later(turn[last_end:]):
        return AnswerVerdict(False, first_text, f"{shown(first_text)} is taken back later in the turn")
    if len(questions) > MAX_QUESTIONS:
        return AnswerVerdict(False, first_text, f"over {MAX_QUESTIONS} different final answers, each to be computed")
    if questions:
        return first, target.text, questions
    return AnswerVerdict(True, first_text, f"{shown(first_text)} is {shown(gold)}")


@lru_cache(maxsize=65536)  # a group's completions give few different answers
def _number_verdict(stated: str, gold: str) -> AnswerVerdict:
    target = read_gold(gold)
    assert not isinstance(target, str)
    right = int(stated.replace(",", "")) == target.number
    return AnswerVerdict(right, stated, f"'{stated}' is {'' if right else 'not '}{target.shown}")


_LAST_LINE = re.compile(
    r"####[ ]?(?:The final answer is )?\$?(-?(?:[1-9][0-9]{0,2}(?:,[0-9]{3}){1,5}|[0-9]{1,18}))\.?\s*\Z"
)


def _lone_number(turn: str) -> str | None:
    """The integer of a turn whose one statement is a plain last line `#### 18`, as most turns in training are.

    None where there may be any other statement: `_check` gives the same verdict on these, in five times the time.
    """
    mark = turn.find("####")
    if mark < 0 or "<" in turn or "boxed" in turn or turn[mark - 1 : mark] == "#":
        return None
    if mark > 0 and turn[mark - 1] != "\n" and turn[mark - 2 : mark] != ". ":
        return None  # "not #### 18"
    last = _LAST_LINE.match(turn, mark)
    if last is None or turn.find("nswer", 0, mark) >= 0 or turn.find("NSWER", 0, mark) >= 0:
        return None
    return last[1]


class _NothingSaid:
    """A statement that claims nothing that could be right or wrong."""


_NOTHING_SAID = _NothingSaid()


def _judge(statement: Statement, gold: Gold, tolerance: float | None) -> tuple[bool | None | _NothingSaid, str]:
    """Whether one statement is the gold (None: ask algebra), and the reading of it that was compared."""
    whole = statement.texts[0]
    if statement.spoiled:
        return (False if statement.explicit else _NOTHING_SAID), whole
    if whole == gold.written:
        return True, whole
    if gold.is_words and len(gold.form.text) == 1 and (choice := _CHOSEN.match(whole)):  # type: ignore[union-attr]
        several = _OTHER_CHOICE.search(whole, choice.end())
        return not several and (choice[1] or choice[2]) == gold.form.text, whole  # type: ignore[union-attr]
    for text in statement.texts:
        number = read_number(text)
        if number is not None and not (gold.form.name and "=" in text):
            if gold.number is not None:
                return _equal_numbers(number, gold, text, tolerance), text
            if number == read_decimal_comma(gold.text):
                return True, text
            return compare(Term("number", str(number), number), gold.form), text
    if gold.number is not None and any(read_decimal_comma(text) == gold.number for text in statement.texts):
        return True, whole
    result: bool | None | _NothingSaid = False if statement.explicit else _NOTHING_SAID
    text = whole
    for reading in statement.texts:
        form = read_form(reading)
        if isinstance(form, str):
            continue
        found = compare(form, gold.form)
        if found is True:
            return True, reading
        if found is False and tolerance is not None and _may_be_near(form, gold.form):
            found = None
        if found is None:
            result, text = None, reading
        elif result is _NOTHING_SAID and _claims(form, gold):
            result, text = False, reading
    return result, text


# "(C) 42", "C) Paris", "option C": the letter is the answer where the gold is one.
_CHOSEN = re.compile(
    r"(?:\\(?:text|textbf|textrm|mathrm|mathbf)\s?\{|[\s*_$])*"
    r"(?:\(?([A-Z])[).:][*_]*(?:[\s}]|\\[ ,;!]|\\quad)|(?:[Oo]ption|[Cc]hoice) \(?([A-Z])\b)"
)
_OTHER_CHOICE = re.compile(r"\([A-Z]\)|(?<![A-Za-z])[A-Z][).:](?![A-Za-z0-9])|\b(?:or|not|wrong|incorrect)\b")


def _claims(form: Form, gold: Gold) -> bool:
    """Whether a sentence that says this of the answer rules the gold out; "the answer is simple" does not."""
    if isinstance(form, Group):
        return gold.number is None or all(term.kind == "number" for term in terms_of(form))
    if form.kind == "words":
        return gold.is_words
    return form.kind == "number" or gold.number is None


def _equal_numbers(number: Number, gold: Gold, text: str, tolerance: float | None) -> bool:
    assert gold.number is not None
    if number == gold.number:
        return True
    # 50 % is 0.5 as well as "50": golds come in both spellings, and the sign says which one is meant.
    percent = has_percent(text)
    if gold.has_percent != percent and (number == gold.number * 100 if percent else number * 100 == gold.number):
        return True
    if tolerance is None:
        return False
    difference = abs(Fraction(number) - Fraction(gold.number))
    return difference <= Fraction(tolerance) * abs(Fraction(gold.number))


def _may_be_near(form: Form, gold: Form) -> bool:
    return all(term.kind in ("number", "math") for one in (form, gold) for term in terms_of(one))


def _is_readable(text: str) -> bool:
    return not isinstance(read_form(text), str)


# ----------------------------------------------------------------------------------------------------------------------
# For people


def explain_answer(
    completion: str | list[dict], gold: str, *, prose: bool = True, tolerance: float | None = None
) -> list[str]:
    """How the verdict on a completion comes about, a sentence a step; the last one is the verdict."""
    text = completion_text(completion)
    turn = own_turn(text)
    lines = []
    if not isinstance(completion, str):
        lines.append(f"Read is the last message of the assistant, {len(text):,} characters.")
    outside = without_thinking(text)
    if len(outside.strip()) < len(text.strip()):
        lines.append(f"Left out is what it thinks aloud: {len(text) - len(outside):,} of {len(text):,} characters.")
    if len(turn) < len(outside):
        lines.append(f"Its own turn ends at {shown(outside[len(turn) :].strip())}: {len(turn):,} characters are read.")
    target = read_gold(gold) if isinstance(gold, str) else "it is no text"
    if isinstance(target, str):
        lines.append(f"The gold {shown(str(gold))} can't be read: {target}.")
    else:
        lines.append(f"The gold {shown(gold)} is read as {_described(target.form)}.")
        found = statements(turn[: MAX_TURN_CHARACTERS + 1], prose=prose, joined=target.is_several)
        lines.append(f"Statements of a final answer in it: {len(found) or 'none'}.")
        names = {"mark": "a line with ####", "box": "a box", "tag": "an <answer> tag", "prose": "a sentence",
                 "bare": "the turn itself"}  # fmt: skip
        for statement in found[:10]:
            form = next((form for form in map(read_form, statement.texts) if not isinstance(form, str)), None)
            read = "not readable as one answer" if form is None else f"read as {_described(form)}"
            spoiled = f", but {statement.spoiled}" if statement.spoiled else ""
            at = f"at character {statement.start:,}"
            lines.append(f"  {names[statement.kind]} {at}: {shown(statement.texts[0])}, {read}{spoiled}")
    verdict = check_answer(completion, gold, prose=prose, tolerance=tolerance)
    word = {True: "right", False: "wrong", None: "can't be said"}[verdict.correct]
    return [*lines, f"Verdict: {word}: {verdict.why}."]


def _described(form: Form) -> str:
    name = f"{form.name} = " if form.name else ""
    if isinstance(form, Term):
        if form.number is not None:
            return f"the number {name}{plain_number(form.number)[:60]}"
        kind = {"words": "the words", "math": "the expression", "relation": "the relation"}[form.kind]
        return f"{kind} {name}{shown(form.text)}"
    items = "; ".join(_described(item) for item in form.items[:6])
    more = " …" if len(form.items) > 6 else ""
    article = "an" if form.kind[0] in "aeiou" else "a"
    return f"{article} {form.kind} {form.brackets or ''}of {name}({items}{more})"
