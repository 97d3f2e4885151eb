"""Judge all cases, and report what they did besides their verdicts."""

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
from tests.support.attacks.case import LIMITS, Case, block
from tests.support.attacks.targets import (
    Targets,
    busy_descendants,
    create_targets,
    descendants,
    find_traces,
    remove_traces,
)

# Characters of one report. A megabyte of compiler messages would be an attack on the log.
MAX_REPORT = 64_000


# Control characters, which feedback must not pass on to a terminal.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


@dataclass(frozen=True)
class SuiteResult:
    """Judgements by the names of the cases, and side effects. All lists should be empty."""

    judgements: dict[str, Judgement]
    traces: list[str]
    contacted: list[str]
    leaks: list[str]
    too_long: list[str]
    unprintable: list[str]
    elapsed_s: float


def skip_reason(case: Case) -> str | None:
    """Return why the case can't run on this machine, or None."""
    if case.needs == "x86_64" and platform.machine() != "x86_64":
        return "system calls by their numbers on x86_64"
    if case.needs == "numpy" and importlib.util.find_spec("numpy") is None:
        return "no numpy here"
    if case.language == "cpp" and shutil.which("g++") is None:
        return "no g++ here"
    return None


def selected(request: pytest.FixtureRequest, cases: Iterable[Case]) -> list[Case]:
    """Return the cases that pytest has selected (`-k`) and that can run on this machine."""
    named = set()
    for item in request.session.items:
        case = (
            item.callspec.params.get("case")
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else None
        )
        if isinstance(case, Case):
            named.add(case.name)
    return [case for case in cases if case.name in named and skip_reason(case) is None]


def fill_placeholders(value: Any, texts: Mapping[str, str]) -> Any:
    """Replace every @NAME@ in the texts of a value."""
    if isinstance(value, str):
        for name, text in texts.items():
            value = value.replace(f"@{name}@", text)
        return value
    if isinstance(value, Mapping):
        return {fill_placeholders(key, texts): fill_placeholders(item, texts) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(fill_placeholders(item, texts) for item in value)
    return value


def submission(case: Case, targets: Targets, judge_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `judge`. The token is new for every case; no program contains it."""
    limits = {**LIMITS, **case.time_limits(), **case.limits}
    texts = {**targets.secrets, "TOKEN": f"token-{secrets.token_hex(16)}"}
    options: dict[str, Any] = {
        "program": fill_placeholders(block(case.program), targets.locations),
        "language": case.language,
        "tests": fill_placeholders(list(case.tests), texts),
        "limits": Limits(**limits),  # type: ignore[arg-type]
        "entry_point": case.entry_point,
        "signature": case.signature,
        "checker": case.checker,
    }
    if case.comparison is not None:
        options["comparison"] = case.comparison
    return {**options, **judge_options}


def run_suite(cases: Sequence[Case], batch: int = 96, **judge_options: Any) -> SuiteResult:
    """Judge all cases in batches, and search for side effects before and afterwards.

    Args:
        judge_options: for every case, such as `allow_weak_sandbox=True`.
    """
    with create_targets() as targets:
        # The judge keeps warm processes. Close it before and after: any further process was left over.
        close()
        before = find_traces(targets)
        children, descriptors = len(descendants(os.getpid())), len(os.listdir("/proc/self/fd"))
        submissions = [submission(case, targets, judge_options) for case in cases]
        start = time.monotonic()
        judged: list[Judgement] = []
        for first in range(0, len(submissions), batch):
            judged += judge_many(submissions[first : first + batch])
        elapsed_s = time.monotonic() - start
        busy = busy_descendants(os.getpid())
        close()
        new_traces = find_traces(targets) - before
        remove_traces(new_traces)
        traces = sorted(new_traces)
        if busy:
            traces.append(f"busy processes {sorted(busy)}")
        if (now := len(descendants(os.getpid()))) > children:
            traces.append(f"{now} processes, {children} before")
        if (now := len(os.listdir("/proc/self/fd"))) > descriptors:
            traces.append(f"{now} descriptors, {descriptors} before")
        judgements = {case.name: judgement for case, judgement in zip(cases, judged, strict=True)}
        return SuiteResult(
            judgements=judgements,
            traces=traces,
            contacted=targets.contacted(),
            leaks=_leaks(submissions, judged, cases, targets),
            too_long=[name for name, judgement in judgements.items() if len(_report(judgement)) > MAX_REPORT],
            unprintable=[name for name, judgement in judgements.items() if _UNPRINTABLE.search(judgement.feedback)],
            elapsed_s=elapsed_s,
        )


def _report(judgement: Judgement) -> str:
    return "\n".join([judgement.feedback, judgement.compile_output, *judgement.stderr])


def _leaks(
    submissions: Sequence[Mapping[str, Any]], judged: Sequence[Judgement], cases: Sequence[Case], targets: Targets
) -> list[str]:
    """Return the cases whose messages hold a secret: a compiler that quotes it has read it."""
    leaks = []
    for options, judgement, case in zip(submissions, judged, cases, strict=True):
        for name, secret in [*targets.secrets.items(), ("a line of /etc/passwd", "root:x:0:")]:
            # Feedback may quote the expected output, which is the secret if the program has to steal it.
            expected = any(test.get("output", "").strip() == secret for test in options["tests"])
            text = judgement.compile_output + "".join(judgement.stderr) + ("" if expected else judgement.feedback)
            if secret in text:
                leaks.append(f"{case.name}: {name}")
    return leaks
