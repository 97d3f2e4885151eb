"""OpenRLHF's protocol for a remote reward model: `query`, `prompts` and `labels` in, `rewards` out.

Its trainer (`--reward.remote_url http://host:port/get_reward`, as of August 2026) sends `query`: prompt and completion
together, with special tokens as text; `prompts`; and `labels`: the row's `--data.label_key`. It reads `rewards`,
`scores` and `extra_logs`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlvr.errors import InputError
from rlvr.formatting import count
from rlvr.reward_server.errors import RequestError, check_length
from rlvr.scoring.reward import Reward

# Special tokens that end a turn, as tokenizers decode them. Left in, they would be part of the answer.
END_TOKENS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
    "<|end|>",
    "<pad>",
    "<|pad|>",
)
_MAX_PREFIX = 64  # characters of special tokens before the prompt in a decoded query
_INPUT_ERROR = "raised InputError: "
_STATUS_TEXT = {
    "late": "timed out",
    "crashed": "crashed its process",
    "failed": "can't be called",
    "unserved": "was not called",
}


def extract_completion(query: str, prompt: str, row: int) -> str:
    """The part of a query after its prompt, without the special tokens at its end.

    Raises:
        RequestError: the query does not begin with its prompt.
    """
    start = query.find(prompt, 0, len(prompt) + _MAX_PREFIX)
    if start < 0:
        raise RequestError(
            422,
            f"Row {row}: the query does not begin with its prompt, so the completion can't be found. Check that "
            "tokenizer and chat template decode a prompt to the same text.",
            kind="prompt-mismatch",
        )
    completion = query[start + len(prompt) :]
    while True:
        stripped = completion.rstrip()
        token = next((token for token in END_TOKENS if stripped.endswith(token)), None)
        if token is None:
            return completion
        completion = stripped[: -len(token)]


class LabelColumns:
    """Convert labels to columns of the data.

    Args:
        rewards: the served rewards; a label provides their columns.
        column: the column of a label that is not an object; None: the only column that the rewards read.

    Raises:
        InputError: no reward reads this column.
    """

    def __init__(self, rewards: Sequence[Reward], column: str | None = None) -> None:
        self.names = sorted({name for reward in rewards for name in reward.columns})
        if column is not None and column not in self.names:
            raise InputError(
                f"--label_column {column}: no reward reads it; they read {', '.join(self.names) or 'no column'}.",
                kind="unknown-column",
                key="label_column",
            )
        self.column = column if column is not None else self.names[0] if len(self.names) == 1 else None

    def columns(self, labels: Sequence[Any], rows: int) -> dict[str, list[Any]]:
        """The columns of the rows.

        Raises:
            RequestError: there are not as many labels as rows, or a label lacks a column.
        """
        if not self.names:
            return {}
        check_length("labels", labels, rows, "entries in query")
        values = [self._row(label, row) for row, label in enumerate(labels)]
        names = sorted({name for row in values for name in row})
        return {name: [row.get(name) for row in values] for name in names}

    def _row(self, label: Any, row: int) -> dict[str, Any]:
        content = label
        if isinstance(label, str) and label.lstrip().startswith("{"):
            try:
                content = json.loads(label)
            except (ValueError, RecursionError):
                content = label
        if isinstance(content, dict) and set(self.names) <= content.keys():
            return content
        if self.column is None:
            raise RequestError(
                422,
                f"Row {row}: the rewards read {', '.join(self.names)}. Send labels that are objects with these "
                "keys, or start the server with --label_column.",
                kind="label-column",
            )
        return {self.column: label}


def missing_reward_error(
    failed: Sequence[int], results: Sequence[Mapping[str, Any]], check: Callable[[str], Sequence[str | None]]
) -> RequestError:
    """The error for rows without a reward: the protocol has no null, and any number would be trained on.

    422 if the data is wrong, which a retry can't repair; else 503.

    Args:
        failed: the rows without a value.
        results: the results of `/score`.
        check: checks the rows with a reward's own file, by the reward's name (`/check`).
    """
    unscored = [result for result in results if any(value is None for value in result["values"])]
    for result in unscored:
        try:
            problems = check(result["reward"])
        except RequestError:  # the check itself fails; the call's own error follows
            problems = []
        invalid = [(row, problem) for row, problem in enumerate(problems) if problem is not None]
        if invalid:
            row, problem = invalid[0]
            message = f"Row {row}: {result['reward']} can't score it: {problem.rstrip('.')}.{_others(len(invalid))}"
            return RequestError(422, message, kind="invalid-rows")
        for outcome in result["outcomes"]:
            cause = _failure(outcome)
            if cause.startswith(_INPUT_ERROR):
                message = f"{cause.removeprefix(_INPUT_ERROR).rstrip('.')}."
                return RequestError(422, message, kind="invalid-rows")
    for result in unscored:
        if cause := next(filter(None, map(_failure, result["outcomes"])), ""):
            message = f"The reward {result['reward']} {cause.rstrip('.')}."
            return RequestError(503, message, kind="reward-failed", retry_after_s=1.0)
    names = " and ".join(result["reward"] for result in unscored)
    message = f"Row {failed[0]} has no value from {names}, which does not say why.{_others(len(failed))}"
    return RequestError(503, message, kind="reward-failed", retry_after_s=1.0)


def _others(rows: int) -> str:
    return f" The same problem: {count(rows - 1, 'more row')}." if rows > 1 else ""


def _failure(outcome: Mapping[str, Any]) -> str:
    """What a call failed with, to follow the reward's name; "" if it did not."""
    if outcome["status"] != "done":
        return f"{_STATUS_TEXT.get(outcome['status'], 'has no value')}: {outcome['why']}"
    return str(outcome["value"]["said"]) if outcome["value"]["kind"] else ""
