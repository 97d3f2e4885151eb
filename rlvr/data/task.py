"""The data of a run: rows with prompts and the columns of the rewards, split into training and held-out rows.

A task file `tasks/NAME.py` defines one function `NAME(*, option=default, …) -> Task`; its keyword-only parameters are
options of the recipe section `task:`. Usual columns: `prompt` (a string, or a list of chat messages), `final_answer`,
`question`, `difficulty`, `source`, `id`. Rewards get every column under its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlvr.dataset_columns import column_values

if TYPE_CHECKING:
    from datasets import Dataset

TEXT_COLUMNS = frozenset({"question", "final_answer", "source", "id"})
RECORDED_COLUMNS = frozenset({"id", "source", "difficulty", "final_answer"})  # stay with the answer to a row
ENDED = "completion_ended"  # whether it ended by itself: ours, from training and evaluation
OPENED = "think_opened"  # in a run's files: whether the chat template has opened <think>
# Arguments that GRPOTrainer itself passes to every reward function (trl/trainer/grpo_trainer.py, _calculate_rewards).
FROM_TRAINER = frozenset(
    {"prompts", "completions", "completion_ids", ENDED, "trainer_state", "log_extra", "log_metric", "environments"}
)
# A column of one of these names never reaches a reward, or breaks GRPOTrainer.
RESERVED_COLUMNS = FROM_TRAINER | {"completion", "image", "images"}


@dataclass(frozen=True)
class Task:
    """Splits of a task, with the same columns; no row is in two of them.

    Attributes:
        train: rows that GRPO samples completions for.
        validation: rows held out for choosing hyperparameters; may be empty.
        test: held-out rows for the reported accuracy.
        stop_strings: ends of the model's own turn in plain-text prompts, where generation stops. Empty for chat
            prompts, which end at the tokenizer's end-of-turn token.
        notes: a sentence for each change of the data (dropped or held-out rows, seed).
        gold: returns a completion of a row that the metric scores 1, in the form that the prompts ask for; None for a
            row without one. The check tries the rewards on some.
        answer: the column that the metric compares with; None where no column holds an answer.
        mixed: the tasks that this one mixes, by label (rlvr/data/mixture.py); empty for a task of its own.
    """

    train: Dataset
    validation: Dataset
    test: Dataset
    stop_strings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    gold: Callable[[Mapping[str, Any]], str | None] | None = None
    answer: str | None = "final_answer"
    mixed: Mapping[str, Task] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = getattr(self.train, "column_names", ())  # `load_task` refuses a split that is no dataset
        if self.answer not in columns:
            object.__setattr__(self, "answer", None)

    @property
    def parts(self) -> Mapping[str, Task]:
        """The tasks that this one mixes, by label; a task of its own is its only part, with the label ""."""
        return self.mixed or {"": self}

    def split(self, name: str) -> Dataset:
        """Return a split by name: "train", "validation" or "test"."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]

    def reference(self, row: Mapping[str, Any]) -> str | None:
        """Return a reference answer for a row: its gold, or the bare answer where the task writes no golds."""
        if self.gold is not None:
            return self.gold(row)
        answer = row[self.answer] if self.answer is not None else None
        return None if answer is None else str(answer)

    def prompts(self, split: str) -> list[Any]:
        """Return the prompts of a split; an empty split may lack the column."""
        rows = self.split(split)
        return list(column_values(rows, "prompt")) if len(rows) else []

    @property
    def is_chat(self) -> bool:
        """Whether prompts are chat messages for the model's template, rather than plain text."""
        rows = next((rows for rows in (self.train, self.validation, self.test) if len(rows)), None)
        return rows is not None and not isinstance(rows[0]["prompt"], str)
