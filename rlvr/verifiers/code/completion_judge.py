"""From completions and columns of the data to judgements: what the code rewards have in common.

    batch = judge_completions("code_execution", prompts, completions, Settings(tests, language="cpp"))
    batch.rows[0].judgement.score

Rewards of one recipe judge the same programs by the same tests (code_execution, code_tiered, code_quality). What was
judged last is kept here, so that each program runs once, whichever of them asks first.
"""

from __future__ import annotations

import hashlib
import json
import logging
import pickle
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlvr.errors import InputError
from rlvr.verifiers.code.code_extraction import begun_by, extract_program, with_prefix
from rlvr.verifiers.code.judge import judge_many
from rlvr.verifiers.code.problems import Settings, read_problems
from rlvr.verifiers.code.types import AC, CE, SE, SKIP, VERDICTS, Judgement, Submission

_log = logging.getLogger(__name__)
LOUD_RUN = 0.5  # share of completions that the sandbox failed on from which the alarm is an error


@dataclass(frozen=True)
class Row:
    """What became of one completion.

    Attributes:
        tests: how many tests it was to be judged by; 0: it can't be scored.
        program: what was judged; None if the completion has no program.
        why: which block that is, or why there is none.
        judgement: None without a program or without tests.
        time_s: the time limit of a test.
    """

    tests: int
    program: str | None
    why: str
    judgement: Judgement | None = None
    time_s: float = 0.0

    @property
    def can_be_scored(self) -> bool:
        """Whether there were tests, and the sandbox did not fail."""
        return self.tests > 0 and not (self.judgement is not None and self.judgement.sandbox_failed)

    @property
    def verdicts(self) -> list[str]:
        """Those of the tests that count, in their order."""
        return counted(self.judgement) if self.judgement is not None else []


@dataclass
class Batch:
    """The rows of a batch, and the seconds that judging them took."""

    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0

    def log(self, name: str, log_metric: Callable[[str, float], None] | None) -> None:
        """Logs the figures of the batch under a reward's name, over the completions that had tests."""
        rows = [row for row in self.rows if row.tests]
        if log_metric is None or not rows:
            return
        verdicts = Counter(verdict for row in rows for verdict in row.verdicts)
        figures = {
            f"verdict_{verdict.lower()}": verdicts[verdict] / verdicts.total() for verdict in VERDICTS if verdicts
        }
        figures["no_program"] = _share(row.program is None for row in rows)
        figures["compile_errors"] = _share(CE in row.verdicts for row in rows)
        figures["sandbox_errors"] = _share(SE in row.verdicts for row in rows)
        ran = [
            seconds
            for row in rows
            if row.judgement is not None
            for verdict, seconds in zip(row.judgement.verdicts, row.judgement.cpu_s, strict=True)
            if verdict not in (CE, SE, SKIP)
        ]
        if ran:
            figures["cpu_s"] = sum(ran) / len(ran)
        figures["judge_s"] = self.seconds
        for figure, value in figures.items():
            log_metric(f"{name}/{figure}", value)


def counted(judgement: Judgement) -> list[str]:
    """The verdicts of the tests that were chosen to be run."""
    chosen = judgement.sampled
    return judgement.verdicts if chosen is None else [judgement.verdicts[index] for index in chosen]


def judge_completions(name: str, prompts: Sequence[Any], completions: Sequence[Any], settings: Settings) -> Batch:
    """Takes the programs out of completions and judges them, each once.

    Args:
        name: of the reward that asks, for its messages.

    Raises:
        InputError: a column or an option is wrong; with the row.
        SandboxUnavailable: programs can't be confined here.
    """
    problems = read_problems(name, settings, len(completions))
    if len(prompts) != len(completions):
        raise InputError(f"Reward {name}: {len(prompts)} prompts for {len(completions)} completions. Give one each.")
    rows: list[Row] = []
    submissions: dict[int, Submission] = {}
    for number, (prompt, completion, problem) in enumerate(zip(prompts, completions, problems, strict=True)):
        begun = begun_by(prompt) if settings.opened is None else "<think>" if settings.opened else ""
        found = extract_program(
            completion,
            language=problem.language,
            blocks=settings.blocks,
            tags=settings.code_tags,
            bare=settings.bare,
            begun=begun,
        )
        rows.append(Row(len(problem.tests), found.program, found.why, time_s=problem.limits.time_s))
        if found.program is not None and problem.tests:
            program = with_prefix(found.program, problem.prefix, problem.entry_point, problem.language)
            submissions[number] = problem.submission(program, settings)
    started = time.perf_counter()
    judgements = _judge_once(name, submissions)
    seconds = time.perf_counter() - started
    rows = [replace(row, judgement=judgements.get(number)) for number, row in enumerate(rows)]
    _sound_alarm(name, rows)
    return Batch(rows, seconds)


def explain_row(name: str, completion: Any, prompt: Any, given: Mapping[str, Any]) -> tuple[Row, list[str]]:
    """What becomes of one completion, and that as sentences, for people: they quote expected outputs."""
    settings = Settings.of({**given, "tests": [given.get("tests")], "public_tests": [given.get("public_tests")]})
    (row,) = judge_completions(name, [prompt], [completion], settings).rows
    lines = [f"{'The program is' if row.program is not None else 'No program:'} {row.why}."]
    if not row.tests:
        lines.append("The row has no tests.")
    if row.judgement is not None:
        verdicts = Counter(row.verdicts)
        lines.append(f"{row.tests} tests, {row.time_s:g} s each: " + ", ".join(f"{verdicts[v]} {v}" for v in verdicts))
        lines += [line for line in row.judgement.feedback.splitlines()[1:] if line]
        if CE in verdicts:
            lines += row.judgement.compile_output.splitlines()[:5]
    return row, lines


# ----------------------------------------------------------------------------------------------------------------------
# Each program once

MOST_KEPT = 4096
MOST_STDERR = 200  # characters a test
_kept: OrderedDict[bytes, Judgement] = OrderedDict()
_lock = threading.Lock()


def _judge_once(name: str, submissions: Mapping[int, Submission]) -> dict[int, Judgement]:
    """The judgements of submissions, those of an earlier call where there are any."""
    digests: dict[int, bytes] = {}
    keys = {number: _key(submission, digests) for number, submission in submissions.items()}
    known: dict[bytes, Judgement] = {}
    with _lock:
        for number, key in keys.items():
            kept = _kept.get(key)
            stop_early = submissions[number].stop_early
            if kept is not None and (stop_early or SKIP not in counted(kept)):
                known[key] = _stopped(kept) if stop_early else kept
                _kept.move_to_end(key)
    missing = {key: submissions[number] for number, key in keys.items() if key not in known}
    try:
        judged = {
            # What a program writes to its standard error is kept short, as there is room for thousands.
            key: replace(judgement, stderr=[text.strip()[-MOST_STDERR:] for text in judgement.stderr])
            for key, judgement in zip(missing, judge_many(list(missing.values())), strict=True)
        }
    except InputError as error:
        raise type(error)(f"Reward {name}: {error}") from error
    with _lock:
        for key, judgement in judged.items():
            if not judgement.sandbox_failed:
                _kept[key] = judgement
                _kept.move_to_end(key)
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
    known |= judged
    return {number: known[key] for number, key in keys.items()}


def _stopped(judgement: Judgement) -> Judgement:
    """What a judgement would have been, had it ended at the first failure: the same as if it had been asked for."""
    chosen = range(len(judgement.verdicts)) if judgement.sampled is None else judgement.sampled
    failed = next((index for index in chosen if judgement.verdicts[index] != AC), None)
    if failed is None or judgement.verdicts[failed] == CE:
        return judgement
    end = failed + 1
    rest = len(judgement.verdicts) - end
    return replace(
        judgement,
        verdicts=judgement.verdicts[:end] + [SKIP] * rest,
        reasons=judgement.reasons[:end] + [""] * rest,
        cpu_s=judgement.cpu_s[:end] + [0.0] * rest,
        memory_mb=judgement.memory_mb[:end] + [0.0] * rest,
        stderr=judgement.stderr[:end] + [""] * rest,
    )


def _key(submission: Submission, digests: dict[int, bytes]) -> bytes:
    """The same for submissions of which one judgement holds for both: whether the first failure ends it aside."""
    if id(submission.tests) not in digests:
        try:
            data = json.dumps(submission.tests, default=repr, sort_keys=True).encode("utf-8", "surrogatepass")
        except (TypeError, ValueError):  # keys of several types, or integers of thousands of digits
            data = pickle.dumps(submission.tests)
        digests[id(submission.tests)] = hashlib.sha256(data).digest()
    rest = replace(submission, program="", tests=[], stop_early=False)
    parts = (submission.program, digests[id(submission.tests)], rest)
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).digest()


def _sound_alarm(name: str, rows: Sequence[Row]) -> None:
    """Says once a batch that the sandbox failed; an error where it fails most programs."""
    failed = [row.judgement for row in rows if row.judgement is not None and row.judgement.sandbox_failed]
    if failed:
        first = failed[0]
        reason = first.reasons[first.verdicts.index(SE)] or "no reason given"
        level = logging.ERROR if len(failed) >= LOUD_RUN * len(rows) else logging.WARNING
        _log.log(
            level,
            "Reward %s: the sandbox failed on %d of %d completions, which get no reward and are left out of the update "
            "(%s). docs/code-rewards.md says what to do.",
            name, len(failed), len(rows), reason,
        )  # fmt: skip


def _share(flags: Any) -> float:
    flags = list(flags)
    return sum(flags) / len(flags) if flags else 0.0


def passed_all(row: Row) -> bool:
    """Whether a completion's program passes every test that counts."""
    return bool(row.verdicts) and all(verdict == AC for verdict in row.verdicts)
