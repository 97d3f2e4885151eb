"""OpenRLHF's protocol for a remote reward model: `query`, `prompts` and `labels` in, `rewards` out.

Its trainer (`--reward.remote_url http://host:port/get_reward`, as of August 2026) sends `query`: prompt and
completion together, with special tokens as text; `prompts`; and `labels`: the row's `--data.label_key`. It takes
`rewards`, and `scores` and `extra_logs` beside them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlvr.errors import InputError
from rlvr.reward_server.limits import Refused
from rlvr.scoring.reward import Reward

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


def refusal(
    failed: Sequence[int], results: Sequence[Mapping[str, Any]], check: Callable[[str], Sequence[str | None]]
) -> Refused:
    """What is said of rows that have no value: the protocol has no word for that, and a number would be learnt from.

    What is wrong with the data, no other attempt would mend: 422. Anything else may be better the next time: 503.

    Args:
        failed: rows without a value, by their numbers.
        results: what `/score` answers of each reward.
        check: what the file of a reward, by its name, has against the rows (`/check`).
    """
    more = f" And so {len(failed) - 1} more of the rows." if len(failed) > 1 else ""
    unscored = [result for result in results if any(value is None for value in result["values"])]
    for result in unscored:
        try:
            faults = check(result["reward"])
        except Refused:  # it has nothing to say of rows; the call has
            faults = []
        wrong = [(row, fault) for row, fault in enumerate(faults) if fault is not None]
        if wrong:
            row, fault = wrong[0]
            more = f" And so {len(wrong) - 1} more of the rows." if len(wrong) > 1 else ""
            return Refused(422, f"Row {row}: {result['reward']} can't score it: {fault.rstrip('.')}.{more}")
        for outcome in result["outcomes"]:
            said = _why(outcome)
            if said.startswith(_INPUT_ERROR):
                return Refused(422, f"{said.removeprefix(_INPUT_ERROR).rstrip('.')}.")
    for result in unscored:
        if said := next(filter(None, map(_why, result["outcomes"])), ""):
            return Refused(503, f"The reward {result['reward']} {said.rstrip('.')}.", 1.0)
    names = " and ".join(result["reward"] for result in unscored)
    return Refused(503, f"Row {failed[0]} has no value from {names}, which does not say why.{more}", 1.0)


_INPUT_ERROR = "raised InputError: "
_MISSED = {
    "late": "was stopped",
    "crashed": "took its process down",
    "failed": "can't be called",
    "unserved": "was not called",
}


def _why(outcome: Mapping[str, Any]) -> str:
    """What is wrong with a call, as it goes on after the reward's name; "" where nothing is."""
    if outcome["status"] != "done":
        return f"{_MISSED.get(outcome['status'], 'has no value')}: {outcome['why']}"
    return str(outcome["value"]["said"]) if outcome["value"]["kind"] else ""
