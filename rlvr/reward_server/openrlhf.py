"""OpenRLHF's protocol for a remote reward model: `query`, `prompts` and `labels` in, `rewards` out.

Its trainer (`--reward.remote_url http://host:port/get_reward`, as of August 2026) sends `query`: prompt and completion
together, with special tokens as text; `prompts`; and `labels`: the row's `--data.label_key`. It reads `rewards`,
`scores` and `extra_logs`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr.errors import InputError
from rlvr.reward_server.request_limits import RequestError, check_length
from rlvr.scoring.reward import Reward

# Special tokens that end a turn, as tokenizers decode them. Left in, they would be part of the answer.
_NAMES = ("im_end", "endoftext", "eot_id", "end_of_text", "end", "pad")
END_TOKENS = ("</s>", "<eos>", "<end_of_turn>", "<pad>", "<｜end▁of▁sentence｜>", *(f"<|{name}|>" for name in _NAMES))
_MAX_PREFIX = 64  # characters of special tokens before the prompt in a decoded query
_INPUT_ERROR = "raised InputError: "


def extract_completion(query: str, prompt: str, row: int) -> str:
    """The part of a query after its prompt, without the special tokens at its end."""
    start = query.find(prompt, 0, len(prompt) + _MAX_PREFIX)
    if start < 0:
        message = f"Row {row}: the query does not begin with its prompt. Check tokenizer and chat template."
        raise RequestError(422, message, kind="prompt-mismatch")
    completion = query[start + len(prompt) :]
    while (stripped := completion.rstrip()).endswith(END_TOKENS):
        completion = stripped[: -len(next(filter(stripped.endswith, END_TOKENS)))]
    return completion


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
            message = f"--label_column {column}: the rewards read {', '.join(self.names) or 'no column'}."
            raise InputError(message, kind="unknown-column", key="label_column")
        self.column = column if column is not None else self.names[0] if len(self.names) == 1 else None

    def columns(self, labels: Sequence[Any], rows: int) -> dict[str, list[Any]]:
        """The columns of the rows."""
        if not self.names:
            return {}
        check_length("labels", labels, rows, "entries in query")
        values = [self._row(label, row) for row, label in enumerate(labels)]
        names = sorted({name for row in values for name in row})
        return {name: [row.get(name) for row in values] for name in names}

    def _row(self, label: Any, row: int) -> dict[str, Any]:
        content = label
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            content = json.loads(label)
        if isinstance(content, dict) and set(self.names) <= content.keys():
            return content
        if self.column is None:
            fix = "Send labels that are objects with these keys, or start the server with --label_column."
            message = f"Row {row}: the rewards read {', '.join(self.names)}. {fix}"
            raise RequestError(422, message, kind="label-column")
        return {self.column: label}


def missing_reward_error(row: int, results: Sequence[Mapping[str, Any]]) -> RequestError:
    """The error for a row without a reward: the protocol has no null, and any number would be trained on.

    422 if a reward refuses the row's data. 503 if a retry may help. `results` are those of `/score`.
    """
    unscored = [result for result in results if any(value is None for value in result["values"])]
    for result in unscored:
        for outcome in result["outcomes"]:
            if outcome["status"] != "done":
                cause = f"has no value: {outcome['why']}"
            elif outcome["value"]["kind"]:
                cause = str(outcome["value"]["said"])
            else:
                continue
            status, kind = (422, "invalid-rows") if cause.startswith(_INPUT_ERROR) else (503, "reward-failed")
            return RequestError(status, f"The reward {result['reward']} {cause.rstrip('.')}.", kind=kind)
    names = " and ".join(result["reward"] for result in unscored)
    message = f"Row {row} has no value from {names}. Its label may be wrong: /check validates rows."
    return RequestError(503, message, kind="reward-failed")
