"""What a batch of conversations with tools holds: turns, the tokens that the model wrote, and why each one ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ToolTurns:
    """The conversations of this rank's batch.

    Attributes:
        completions: messages after the prompt, as TRL has them.
        tool_mask: 1 for tokens of the model, 0 for those of tools; None if there are no tools.
        ended: whether the last turn ended by itself.
        max_iterations: `max_tool_calling_iterations`.
        result_seconds: messages of tool results with the seconds of their calls, as `resolve` returns them.
    """

    completions: Sequence[Sequence[Mapping[str, Any]]] = ()
    tool_mask: Sequence[Sequence[int]] | None = None
    ended: Sequence[bool] = ()
    max_iterations: int = 0
    result_seconds: Sequence[tuple[Mapping[str, Any], float | None]] = ()

    def sums(self) -> tuple[int, int, int]:
        """Turns of the model, conversations that were cut by the limit of iterations, and conversations."""
        turns = sum(message["role"] == "assistant" for messages in self.completions for message in messages)
        return turns, self.stopped().count("iterations"), len(self.completions)

    def stopped(self) -> list[str]:
        """Why each conversation ended: "answer", or cut by "iterations" or "length" (max_completion_length)."""
        return [self._stopped(*pair) for pair in zip(self.completions, self.ended, strict=True)]

    def _stopped(self, messages: Sequence[Mapping[str, Any]], ended: bool) -> str:
        last = messages[-1]
        if last["role"] == "assistant" and not last.get("tool_calls"):
            return "answer" if ended else "length"
        turns = sum(message["role"] == "assistant" for message in messages)
        return "iterations" if last["role"] == "assistant" and turns > self.max_iterations else "length"

    def own_tokens(self, completion_ids: Sequence[Sequence[int]]) -> list[list[int]]:
        """The tokens that the model wrote."""
        masks = self.tool_mask or [[1] * len(ids) for ids in completion_ids]
        return [
            [token for token, own in zip(ids, mask, strict=True) if own]
            for ids, mask in zip(completion_ids, masks, strict=True)
        ]

    def columns(self) -> dict[str, list[str]]:
        """Columns of the table of completions: why each ended, and the seconds of its results as a JSON list."""
        seconds = {id(message): value for message, value in self.result_seconds}
        texts = [
            json.dumps([seconds.get(id(message)) for message in messages if message["role"] == "tool"])
            for messages in self.completions
        ]
        return {"stopped": self.stopped(), "tool_seconds": texts}
