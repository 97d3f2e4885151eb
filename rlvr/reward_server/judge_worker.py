"""Judge the programs of one /judge request, in a worker that can be killed."""

from __future__ import annotations

from typing import Any

from rlvr.errors import InputError
from rlvr.scoring.reward_worker import read_served_item
from rlvr.verifiers.code import Judgement, Limits, SandboxUnavailable, judge_many

MAX_STDERR = 200  # characters a test
_FIELDS = ("score", "verdicts", "cpu_s", "memory_mb", "compile_output", "sampled")
_REASONS = ("reasons", "feedback")


def judge_request(item: bytes) -> dict[str, Any]:
    """Judge all submissions; return their judgements, or an error with its HTTP status and kind.

    Args:
        item: a `served_item` with the columns "submissions" (the arguments of `rlvr.verifiers.code.judge` except
            `tests`) and "tests", and "reasons": whether to include why tests failed.
    """
    message, columns = read_served_item(item)
    try:
        submissions = [
            {**submission, "tests": tests, "limits": Limits(**submission["limits"])}
            for submission, tests in zip(columns["submissions"], columns["tests"], strict=True)
        ]
        judgements = judge_many(submissions)
    except SandboxUnavailable as error:
        return {"error": str(error), "status": 503, "kind": "no-sandbox"}
    except InputError as error:
        return {"error": str(error), "status": 422, "kind": error.kind}
    return {"judgements": [_as_json(judgement, message["reasons"]) for judgement in judgements]}


def _as_json(judgement: Judgement, reasons: bool) -> dict[str, Any]:
    content = {name: getattr(judgement, name) for name in (*_FIELDS, *(_REASONS if reasons else ()))}
    if reasons:
        content["stderr"] = [text.strip()[-MAX_STDERR:] for text in judgement.stderr]
    return content
