"""1 if the query in a completion returns what the reference query returns, else 0: text-to-SQL in one turn.

    database: shop.db                                  # columns: a SQLite file, relative to the option `folder`,
    gold_query: SELECT count(*) FROM sales             # and the query whose rows are right

The query is the last complete code block of the model's own turn, or the whole turn if there is none. It runs on a copy
of the database in the sandbox (docs/verifiers.md), which it can only read. Rows are compared as a multiset, in order if
`gold_query` ends in ORDER BY. Names of columns don't count; their order, types and NULL do. Numbers are equal if they
differ by rounding alone (1e-9).

`SELECT 42` is the cheap exploit: it is right if the answer is 42. So the query also runs on halves of the database, and
has to be right wherever the reference's result changes (rlvr/verifiers/sql_judge.py).

Exploits: a query that is right by chance, where the data is small. A constant scores 1 if no changed copy changes the
result. Queries that mean the same but order equal keys otherwise, or that rely on relations that hold by chance, may
score 0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlvr.errors import row_faults
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
    changed_copies: bool = True,
    allow_weak_sandbox: bool = False,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Run each query, and compare its rows with the right ones.

    Args:
        prompts: strings, or lists of chat messages. Only the start of the answer is read from them.
        completions: strings, or lists of chat messages.
        database: for each row the name of a SQLite file of at most 16 MB.
        gold_query: for each row the reference query.
        ordered: an optional column: whether the order of the rows counts.
        folder: where the databases are. No row can name a file outside of it.
        time_s: seconds of CPU time of a query on a copy of the database.
        changed_copies: whether a query must also be right on changed copies.
        allow_weak_sandbox: run queries where they can't be confined.

    Returns:
        1.0 or 0.0 for each completion; None if the sandbox failed.

    Raises:
        InputError: a database is none, a reference query fails, or an option is invalid.
    """
    found = [_extract(*row) for row in zip(completions, prompts, strict=True)]
    orders = [None] * len(completions) if ordered is None else ordered
    questions = [
        read_question(one.program, file, gold, order, folder)
        for one, file, gold, order in zip(found, database, gold_query, orders, strict=True)
    ]
    judged = judge_queries(
        questions, time_s=time_s, changed_copies=changed_copies, allow_weak_sandbox=allow_weak_sandbox
    )
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
    changed_copies: bool = True,
    allow_weak_sandbox: bool = False,
    **kwargs: Any,
) -> list[str | None]:
    """Return for each row why no query can be judged by it, or None. Called once before training.

    A row on which a constant is right, because no changed copy changes the result, has a warning.
    """
    faults = row_faults(lambda file, gold: read_question(None, file, gold, None, folder), database, gold_query)
    readable = [row for row, fault in enumerate(faults) if fault is None]
    found = find_faults(
        [Path(folder) / database[row] for row in readable],
        [gold_query[row] for row in readable],
        time_s=time_s,
        changed_copies=changed_copies,
        allow_weak_sandbox=allow_weak_sandbox,
    )
    for row, fault in zip(readable, found, strict=True):
        faults[row] = fault
    return faults


def _extract(completion: Any, prompt: Any) -> Extraction:
    found = [
        extract_program(completion, language=language, bare=True, prefill=answer_prefill(prompt))
        for language in LANGUAGES
    ]
    return next((extraction for extraction in found if extraction.program is not None), found[0])
