"""Runs cases through the judge, and says what they did beside their verdicts."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from rlvr.verifiers.code import Judgement, Limits, close, judge_many
from tests.support.attacks.case import LIMITS, SPINS, Case, block
from tests.support.attacks.grounds import Grounds, busy_descendants, descendants, planted, remove, traces

# What a report of the judge's may hold; a megabyte of a compiler's complaints is an attack on the log.
LONGEST_REPORT = 64_000


# What would move a terminal's cursor. What a program wrote stands in feedback as text, not as a command.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


@dataclass(frozen=True)
class SuiteResult:
    """The judgements by the names of the cases, and what else happened; the lists are empty when all is well."""

    judgements: dict[str, Judgement]
    left_behind: list[str]
    visitors: list[str]
    leaks: list[str]
    too_long: list[str]
    unprintable: list[str]
    elapsed_s: float


def why_not(case: Case) -> str | None:
    """Why the case cannot run on this machine, if it cannot."""
    if case.needs == "x86_64" and platform.machine() != "x86_64":
        return "system calls by their numbers on x86_64"
    if case.needs == "numpy" and importlib.util.find_spec("numpy") is None:
        return "no numpy here"
    if case.language == "cpp" and shutil.which("g++") is None:
        return "no g++ here"
    return None


def selected(request: pytest.FixtureRequest, cases: Iterable[Case]) -> list[Case]:
    """The cases that pytest was asked for and that can run here, so that `-k` runs no more than it says."""
    named = set()
    for item in request.session.items:
        case = (
            item.callspec.params.get("case")
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else None
        )
        if isinstance(case, Case):
            named.add(case.name)
    return [case for case in cases if case.name in named and why_not(case) is None]


def filled(value: Any, words: Mapping[str, str]) -> Any:
    """The value with every @WORD@ in its texts replaced."""
    if isinstance(value, str):
        for word, text in words.items():
            value = value.replace(f"@{word}@", text)
        return value
    if isinstance(value, Mapping):
        return {filled(key, words): filled(item, words) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(filled(item, words) for item in value)
    return value


def submission(case: Case, grounds: Grounds, judge_options: Mapping[str, Any]) -> dict[str, Any]:
    """What judge() is called with. A token is new for every case, and no program contains it."""
    limits = {**LIMITS, **(SPINS if case.only_spins() else {}), **case.limits}
    hidden = {**grounds.hidden, "TOKEN": f"token-{secrets.token_hex(16)}"}
    options: dict[str, Any] = {
        "program": filled(block(case.program), grounds.places),
        "language": case.language,
        "tests": filled(list(case.tests), hidden),
        "limits": Limits(**limits),  # type: ignore[arg-type]
        "entry_point": case.entry_point,
        "signature": case.signature,
        "checker": case.checker,
    }
    if case.comparison is not None:
        options["comparison"] = case.comparison
    return {**options, **judge_options}


def run_suite(cases: Sequence[Case], batch: int = 96, **judge_options: Any) -> SuiteResult:
    """Judges all cases in batches, and looks around before and afterwards.

    `judge_options` go to the judge with every case, such as `allow_weak_sandbox=True` for a lower rung of the ladder.
    """
    with planted() as grounds:
        # The judge keeps processes warm. It starts from none and ends with none: whatever is more was left over.
        close()
        before, children, descriptors = traces(grounds), len(descendants(os.getpid())), len(os.listdir("/proc/self/fd"))
        asked = [submission(case, grounds, judge_options) for case in cases]
        start = time.monotonic()
        judged: list[Judgement] = []
        for first in range(0, len(asked), batch):
            judged += judge_many(asked[first : first + batch])
        elapsed_s = time.monotonic() - start
        busy = busy_descendants(os.getpid())
        close()
        left = traces(grounds) - before
        remove(left)
        left_behind = sorted(left)
        if busy:
            left_behind.append(f"busy processes {sorted(busy)}")
        if (now := len(descendants(os.getpid()))) > children:
            left_behind.append(f"{now} processes, {children} before")
        if (now := len(os.listdir("/proc/self/fd"))) > descriptors:
            left_behind.append(f"{now} descriptors, {descriptors} before")
        return SuiteResult(
            judgements={case.name: judgement for case, judgement in zip(cases, judged, strict=True)},
            left_behind=left_behind,
            visitors=grounds.visitors(),
            leaks=_leaks(asked, judged, cases, grounds),
            too_long=[case.name for case, it in zip(cases, judged, strict=True) if len(_report(it)) > LONGEST_REPORT],
            unprintable=[case.name for case, it in zip(cases, judged, strict=True) if _UNPRINTABLE.search(it.feedback)],
            elapsed_s=elapsed_s,
        )


def _report(judgement: Judgement) -> str:
    return "\n".join([judgement.feedback, judgement.compile_output, *judgement.stderr])


def _leaks(
    asked: Sequence[Mapping[str, Any]], judged: Sequence[Judgement], cases: Sequence[Case], grounds: Grounds
) -> list[str]:
    """The cases whose messages hold a secret: what a compiler quotes, it has read."""
    found = []
    for options, judgement, case in zip(asked, judged, cases, strict=True):
        for name, secret in [*grounds.hidden.items(), ("a line of /etc/passwd", "root:x:0:")]:
            # The feedback may name the expected output, which is the secret where the program is to steal it.
            expected = any(test.get("output", "").strip() == secret for test in options["tests"])
            text = judgement.compile_output + "".join(judgement.stderr) + ("" if expected else judgement.feedback)
            if secret in text:
                found.append(f"{case.name}: {name}")
    return found
