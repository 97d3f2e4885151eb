"""Validate during training: greedy, on rows that training never sees, whole and per source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.evaluation import evaluate
from rlvr.scoring.reward import Reward, total
from rlvr.scoring.scorer import Scorer

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Validation:
    """The measurement that `eval_strategy` makes every `eval_steps` steps.

    Attributes:
        data: the rows, the task's split `validation`.
        rewards, metric: those of the recipe.
        scorer: runs them.
        batch_size, max_new_tokens, stop_strings: as for `rlvr.evaluation.evaluate`.
    """

    data: Dataset
    rewards: Sequence[Reward]
    metric: Reward
    scorer: Scorer
    batch_size: int
    max_new_tokens: int
    stop_strings: Sequence[str] = ()

    def measure(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prefix: str) -> dict[str, float]:
        """Return metrics by name: `<prefix>_reward`, `_accuracy`, `_cut_off`, `_<reward>` and `_<source>/accuracy`.

        Collective: every process takes a share of the rows, and all get the whole result.
        """
        score, records = evaluate(
            model,
            tokenizer,
            self.data,
            self.rewards,
            self.metric,
            self.scorer,
            batch_size=self.batch_size,
            max_new_tokens=self.max_new_tokens,
            stop_strings=self.stop_strings,
            description="validating",
        )
        rows = [[record[f"rewards/{reward.label}"] for reward in self.rewards] for record in records]
        sums = [value for value in (total(row, self.rewards) for row in rows) if value is not None]
        metrics = {
            f"{prefix}_accuracy": score.accuracy,
            f"{prefix}_rows": float(score.rows),
            f"{prefix}_unscored": float(score.unscored),
            f"{prefix}_cut_off": score.cut_off,
            f"{prefix}_mean_length": score.mean_tokens,
            **{f"{prefix}_{label}": value for label, value in score.rewards.items()},
            **{f"{prefix}_{source}/accuracy": part["accuracy"] for source, part in score.by_source.items()},
        }
        if sums:
            metrics[f"{prefix}_reward"] = sum(sums) / len(sums)
        return metrics
