"""What a worker of /judge does: it judges the programs of one request, and can be killed when that takes too long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlvr.errors import InputError
from rlvr.scoring.call import spread
from rlvr.verifiers.code import Judgement, Limits, SandboxUnavailable, judge_many

MOST_STDERR = 200  # characters a test


def judge_request(item: Mapping[str, Any]) -> dict[str, Any]:
    """The judgements of the submissions, in their order; or the error that none was judged for, and its status.

    Args:
        item: submissions, the arguments of `rlvr.verifiers.code.judge` in each but `tests`; these, as
            `rlvr.scoring.call.gathered` has them; and whether to say why tests failed.
    """
    try:
        submissions = [
            {**one, "tests": tests, "limits": Limits(**one["limits"])}
            for one, tests in zip(item["submissions"], spread(*item["tests"]), strict=True)
        ]
        judgements = judge_many(submissions)
    except SandboxUnavailable as error:
        return {"error": str(error), "status": 503}
    except InputError as error:
        return {"error": str(error), "status": 422}
    return {"judgements": [_told(judgement, item["reasons"]) for judgement in judgements]}


def _told(judgement: Judgement, reasons: bool) -> dict[str, Any]:
    told = {
        "score": judgement.score,
        "verdicts": judgement.verdicts,
        "cpu_s": judgement.cpu_s,
        "memory_mb": judgement.memory_mb,
        "compile_output": judgement.compile_output,
        "sampled": judgement.sampled,
    }
    if reasons:
        stderr = [text.strip()[-MOST_STDERR:] for text in judgement.stderr]
        told |= {"reasons": judgement.reasons, "feedback": judgement.feedback, "stderr": stderr}
    return told
