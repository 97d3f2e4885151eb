"""OpenRLHF's protocol for a remote reward model: `query`, `prompts` and `labels` in, `rewards` out.

Its trainer (`--reward.remote_url http://host:port/get_reward`, as of August 2026) sends `query`: prompt and
completion together, with special tokens as text; `prompts`; and `labels`: the row's `--data.label_key`. It takes
`rewards`, and `scores` and `extra_logs` beside them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rlvr.errors import InputError
from rlvr.rewarding import Reward
from rlvr.serving.allowance import Refused

# What ends a turn, as tokenizers decode it; a reward would take it for a part of the answer.
ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>", "<eos>", "<end_of_turn>",
        "<｜end▁of▁sentence｜>", "<|end|>", "<pad>", "<|pad|>")  # fmt: skip
_BEGINNING = 64  # characters of special tokens that a decoded query may have before its prompt


def completion_of(query: str, prompt: str, row: int) -> str:
    """What of a query is the completion, without the special tokens at its end.

    Raises:
        Refused: the query does not begin with its prompt.
    """
    place = query.find(prompt, 0, len(prompt) + _BEGINNING)
    if place < 0:
        raise Refused(
            422, f"Row {row}: the query does not begin with its prompt, so it can't be told where the completion "
            "begins. Do the tokenizer and the chat template decode a prompt to what it was?"
        )  # fmt: skip
    completion = query[place + len(prompt) :]
    while True:
        stripped = completion.rstrip()
        end = next((end for end in ENDS if stripped.endswith(end)), None)
        if end is None:
            return completion
        completion = stripped[: -len(end)]


class Labels:
    """Labels as columns of the data.

    Args:
        rewards: that are served; their columns are what a label may give.
        column: that a label which is no object stands for; None: the only one that the rewards read.

    Raises:
        InputError: no reward reads such a column.
    """

    def __init__(self, rewards: Sequence[Reward], column: str | None = None) -> None:
        self.known = sorted({name for reward in rewards for name in reward.columns})
        if column is not None and column not in self.known:
            raise InputError(
                f"--label-column {column}: no reward reads it; they read {', '.join(self.known) or 'no column'}."
            )
        self.column = column if column is not None else self.known[0] if len(self.known) == 1 else None

    def columns(self, labels: Sequence[Any], rows: int) -> dict[str, list[Any]]:
        """The columns of some rows.

        Raises:
            Refused: a label is no label for these rewards.
        """
        if not self.known:
            return {}
        if len(labels) != rows:
            raise Refused(422, f"{rows} entries in query, but {len(labels)} in labels. Give one each.")
        read = [self._columns(label, row) for row, label in enumerate(labels)]
        names = sorted({name for given in read for name in given})
        return {name: [given.get(name) for given in read] for name in names}

    def _columns(self, label: Any, row: int) -> dict[str, Any]:
        given = label
        if isinstance(label, str) and label.lstrip().startswith("{"):
            try:
                given = json.loads(label)
            except (ValueError, RecursionError):
                given = label
        if isinstance(given, dict) and set(self.known) <= given.keys():
            return given
        if self.column is None:
            raise Refused(
                422, f"Row {row}: the rewards read {', '.join(self.known)}, so a label should be an object with these "
                "keys, or the server be told which one a label is (--label-column)."
            )  # fmt: skip
        return {self.column: label}
