"""Score chosen texts as completions of training rows, for the contract of rewards and for the red team."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.data.task import Task
from rlvr.scoring.call_conditions import TRIAL_STEP
from rlvr.scoring.call_result import Scored
from rlvr.scoring.environment_reward import ENVIRONMENTS
from rlvr.scoring.scorer import Scorer

PROBED_ROWS = 16
NOISE = "qwv zzrt. Ploo banter umf, gree!"  # no number, no code, no sentence: right for no row of any task


@dataclass(frozen=True)
class Probe:
    """A text to score.

    Attributes:
        text: the completion, or the content of the assistant's message where prompts are chat messages.
        row: of the training split, whose prompt the rewards get.
        scored_with: the row whose other columns they get, if it is another one.
    """

    text: str
    row: int
    scored_with: int | None = None


class Prober:
    """Score probes through the scorer, in the rewards' own workers.

    Args:
        reset: makes an environment for each row, if the recipe has environments. The completion calls no tool.
    """

    def __init__(
        self, task: Task, scorer: Scorer, reset: Callable[[list[dict[str, Any]], int], Any] | None = None
    ) -> None:
        self.task, self.scorer, self.reset = task, scorer, reset

    def score(self, probes: Sequence[Probe], skipped: Collection[str] = ()) -> Scored:
        """The raw values of all rewards of the scorer, less the `skipped` labels, for each probe."""
        rows = self.task.train[[probe.row for probe in probes]]
        others = self.task.train[[probe.row if (other := probe.scored_with) is None else other for probe in probes]]
        texts = [probe.text for probe in probes]
        completions: list[Any] = [[{"role": "assistant", "content": text}] for text in texts]
        columns = {name: values for name, values in others.items() if name != "prompt"}
        if self.reset is not None:
            columns[ENVIRONMENTS] = self.reset([self.task.train[probe.row] for probe in probes], TRIAL_STEP)
        return self.scorer.score(
            rows["prompt"],
            completions if self.task.is_chat else texts,
            columns,
            completion_ids=[[0] * len(text) for text in texts],  # only their lengths differ
            step=TRIAL_STEP,
            skipped=skipped,
        )


def spread_rows(task: Task, wanted: int = PROBED_ROWS) -> list[int]:
    """Training rows, spread evenly over the split."""
    return list(range(0, len(task.train), max(1, len(task.train) // wanted)))[:wanted]


def trial_texts(task: Task, row: int) -> dict[str, str]:
    """The texts that the check scores for a training row, by kind; "reference" only where the task has one."""
    values = task.train[row]
    reference = task.reference(values)
    without_content = {"empty": "", "prompt": last_message(values), "noise": NOISE}
    return without_content if reference is None else {"reference": reference, **without_content}


def last_message(row: Mapping[str, Any]) -> str:
    """The prompt of a row, or the content of its last message."""
    prompt = row["prompt"]
    return prompt if isinstance(prompt, str) else str(prompt[-1]["content"])


def same_answer(one: Any, other: Any) -> bool:
    """Whether two answers are equal: numbers by value, text without surrounding space and case."""
    try:
        return float(one) == float(other)
    except (TypeError, ValueError):
        return str(one).strip().casefold() == str(other).strip().casefold()
