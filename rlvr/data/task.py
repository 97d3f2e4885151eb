"""What a task is: rows with a prompt and the columns that rewards read, split so that held-out means held out.

A task file `tasks/NAME.py` defines one function `NAME(*, option=default, …) -> Task`; its keyword-only parameters are
the options that a recipe may set under `task:`. Columns by convention: `prompt` (a string, or a list of chat
messages), `final_answer`, `question`, `difficulty`, `source`, `id`; any other column reaches the rewards under its own
name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Task:
    """The splits of a task; every one has the same columns, and no row is in two of them.

    Attributes:
        train: rows that GRPO samples completions for.
        validation: rows split off from the training data, for choosing hyperparameters by; 0 rows if not asked for.
        test: held-out rows, the only ones that an accuracy is reported on.
        stop_strings: strings at which the model's own turn ends in this task's plain-text prompts (generation stops
            there); empty for chat prompts, whose turn ends at the tokenizer's end-of-turn token.
        notes: one sentence for each thing that was done to the data (rows dropped or split off, seed), for people.
        gold: writes a completion that deserves every reward, from a row; None for a row without one. The rewards are
            tried on some before training (rlvr/preflight/reward_trial.py); no reward and no model gets to see them.
    """

    train: Dataset
    validation: Dataset
    test: Dataset
    stop_strings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    gold: Callable[[Mapping[str, Any]], str | None] | None = None

    def split(self, name: str) -> Dataset:
        """The split called `name` ("train", "validation" or "test")."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        return splits[name]

    @property
    def is_chat(self) -> bool:
        """Whether prompts are chat messages, to be rendered by the model's own template, rather than plain text."""
        rows = next((rows for rows in (self.train, self.validation, self.test) if len(rows)), None)
        return rows is not None and not isinstance(rows[0]["prompt"], str)
