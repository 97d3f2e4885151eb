"""Call a reward function, and return values and failures as plain data: the same in a worker and in the trainer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.errors import InputError
from rlvr.scoring.results import CallResult, Note
from rlvr.scoring.reward import Reward, as_values, file_of, own_traceback

MAX_TRACE = 4000  # characters
WHY = "/why"  # ends a column that explains scores: rlvr/rescoring/explain.py asks for it, a run drops it


def call_reward(reward: Reward, arguments: Mapping[str, Any], trainer_state: object) -> CallResult:
    """Call a reward as GRPOTrainer does. What the function logs is returned as notes.

    Args:
        arguments: prompts, completions and columns.
    """
    notes: list[Note] = []
    extras: dict[str, list[Any]] = {}

    def log_extra(column: str, values: list[Any]) -> None:
        if str(column).endswith(WHY):
            return
        if column not in extras:
            extras[column] = []
            notes.append(("extra", str(column), extras[column]))
        extras[column] += [_plain(value) for value in values]  # as GRPOTrainer does

    def log_metric(name: str, value: float) -> None:
        notes.append(("metric", str(name), float(value)))

    named = {**arguments, "trainer_state": trainer_state, "log_extra": log_extra, "log_metric": log_metric}
    prompts, completions = named.pop("prompts"), named.pop("completions")
    try:
        values = as_values(reward.call(prompts, completions, named), len(completions))
    except (Exception, SystemExit) as error:
        trace = own_traceback(error, file_of(reward.function), chain=True)
        if isinstance(error, InputError) or not trace.startswith("Traceback"):
            trace = ""  # the message is enough, or the call never came to the user's code
        if len(trace) > MAX_TRACE:
            trace = f"{trace[: MAX_TRACE // 2]}\n…\n{trace[-MAX_TRACE // 2 :]}"
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return CallResult(kind="raised", message=f"raised {text}"[:1000], trace=trace)
    if isinstance(values, str):
        return CallResult(kind="wrong length", message=values)
    return CallResult(values, notes=notes)


def _plain(value: Any) -> Any:
    """Keep numbers, text and None, which JSON can represent; anything else becomes text."""
    if hasattr(value, "item") and getattr(value, "size", 2) in (1, ()):  # a number of numpy
        value = value.item()
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else hex(value)[:100]
    return str(value)


def digest_of(reward: Reward) -> str:
    """Hash of the file that defines a reward, to compare machines; "" without a file."""
    return digest_of_file(file_of(reward.function))


def digest_of_file(file: str | None) -> str:
    """Hash of a file; "" without one."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file is not None else ""
    except OSError:
        return ""
