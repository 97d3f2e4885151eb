"""Reward a query that returns what the reference query returns: 1 or 0. Text-to-SQL in one turn.

    database: shop.db                                  # columns: a SQLite file, relative to the option `folder`,
    gold_query: SELECT count(*) FROM sales             # and the reference query

The query is the last complete code block of the model's own turn, or else the whole turn. The query runs on a copy of
the database in the sandbox (docs/verifiers.md), and can only read. Rows are compared as a multiset. Order counts if
`gold_query` has an ORDER BY outside of all brackets. Names of columns don't count. Their order and NULL do, and the
text '1' is not the number 1. Numbers with decimals are compared after rounding to ten significant digits.

`SELECT 42` is the cheap exploit: correct if the answer is 42. So the query also runs on changed copies (halves first).
The query must be correct on each of them that changes the reference's result (rlvr/verifiers/sql_judge.py).

Known weaknesses: on small data, a query may be correct by chance. A constant scores 1 if no changed copy changes the
result. An equivalent query may score 0 if it orders ties differently, or needs a relation that changed copies break.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlvr.verifiers.code.code_extraction import Extraction, answer_prefill, extract_program
from rlvr.verifiers.sql_judge import find_faults, judge_queries, read_question

LANGUAGES = ("sql", "sqlite")  # labels of the block


def sql_result(
    prompts: list[Any],
    completions: list[Any],
    *,
    database: list[Any],
    gold_query: list[Any],
    ordered: list[Any] | None = None,
    folder: str = ".",
    time_s: float = 2.0,
    allow_weak_sandbox: bool = False,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Run each query, and compare its rows with the rows of the reference query.

    Args:
        prompts: strings, or lists of chat messages. Only the start of the answer is read from them.
        completions: strings, or lists of chat messages.
        database: for each row the name of a SQLite file of at most 16 MB.
        gold_query: for each row the reference query.
        ordered: an optional column: whether the order of the rows counts. By default, the reference query decides.
        folder: the folder of the databases. No row can name a file outside of it.
        time_s: CPU seconds of a query on each copy of the database.
        allow_weak_sandbox: run queries where they can't be confined.

    Returns:
        1.0 or 0.0 for each completion. None if the sandbox failed.

    Raises:
        InputError: a file is not a SQLite database, a reference query fails, or an option is invalid.
    """
    found = [_extract(*row) for row in zip(completions, prompts, strict=True)]
    orders = [None] * len(completions) if ordered is None else ordered
    questions = [
        read_question(one.program, file, gold, order, folder)
        for one, file, gold, order in zip(found, database, gold_query, orders, strict=True)
    ]
    judged = judge_queries(questions, time_s=time_s, allow_weak_sandbox=allow_weak_sandbox)
    if log_extra is not None:
        reasons = [f"The query is {one.why}: {judgement.why}." for one, judgement in zip(found, judged, strict=True)]
        log_extra("sql_result/why", reasons)
    return [None if judgement.is_right is None else float(judgement.is_right) for judgement in judged]


def validate_rows(
    *,
    database: list[Any],
    gold_query: list[Any],
    folder: str = ".",
    time_s: float = 2.0,
    allow_weak_sandbox: bool = False,
    **kwargs: Any,
) -> list[str | None]:
    """Return for each row why no query can be judged by it, or None. Called before training.

    A row has a warning if a constant scores 1, because no changed copy changes the result.
    """
    return find_faults(database, gold_query, folder, time_s=time_s, allow_weak_sandbox=allow_weak_sandbox)


def _extract(completion: Any, prompt: Any) -> Extraction:
    found = [
        extract_program(completion, language=language, bare=True, prefill=answer_prefill(prompt))
        for language in LANGUAGES
    ]
    return next((extraction for extraction in found if extraction.program is not None), found[0])
