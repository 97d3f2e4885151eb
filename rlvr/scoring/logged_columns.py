"""What the table of completions gets of a batch: text columns that rewards read, and what functions logged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlvr.scoring.call_result import CallResult
from rlvr.scoring.reward import Reward
from rlvr.scoring.signature import columns_read

_log = logging.getLogger(__name__)
LogExtra = Callable[[str, list[Any]], None]
# Columns of the trainer's table of completions (trl/trainer/grpo_trainer.py, log).
TABLE_COLUMNS = frozenset({"step", "prompt", "completion", "advantage"})
# Characters. Longer text is not repeated for every completion of a group; the task has it, by the prompt.
MOST_LOGGED = 10_000


class TextColumns:
    """The columns to log.

    Attributes:
        is_text: whether a column holds text, as its first batch had it: TRL can't write a table of completions with a
            column that is logged in some steps only. Set it for a mixture of tasks, whose first batch may lack the
            rows that have a column.
    """

    def __init__(self, rewards: Sequence[Reward]) -> None:
        self.is_text: dict[str, bool] = {}
        self._columns = [(reward.name, sorted(columns_read(reward))) for reward in rewards]
        self._reserved = TABLE_COLUMNS.union(reward.label for reward in rewards)

    def log(
        self,
        results: Sequence[CallResult],
        columns: Mapping[str, Any],
        rows: int,
        log_extra: LogExtra | None,
        log_metric: Callable[[str, float], None] | None,
    ) -> frozenset[str]:
        """Log columns and notes, and return the names of the columns.

        The first column of a name wins: two would make the table of completions unwritable. Numbers are not logged,
        since the report takes every number of that table for a reward.

        Args:
            results: of the rewards, in their order.
        """
        logged: set[str] = set()
        for (reward, names), result in zip(self._columns, results, strict=True):
            for what, name, value in result.notes:
                if what == "metric" and log_metric is not None:
                    log_metric(name, value)
            if log_extra is None:
                continue
            extras = [(name, values) for name in names if (values := self._texts(name, columns, rows)) is not None]
            extras += [(name, value) for what, name, value in result.notes if what == "extra"]
            for name, values in extras:
                if name in logged:
                    continue
                if len(values) != rows:
                    what = f"The reward {reward} logged {len(values)} values for {rows} completions under {name}"
                    _log.warning("%s. The table of completions leaves them out.", what)
                else:
                    logged.add(name)
                    log_extra(name, values)
        return frozenset(logged)

    def _texts(self, name: str, columns: Mapping[str, Any], rows: int) -> list[str | None] | None:
        """The values of a text column; None if it is none."""
        values = columns.get(name)
        if name in self._reserved or not isinstance(values, list) or len(values) != rows:
            return None
        is_text = all(value is None or isinstance(value, str) for value in values)
        return [_loggable(value) for value in values] if self.is_text.setdefault(name, is_text) else None


def _loggable(value: Any) -> str | None:
    """The text itself; None where parquet could not hold it (a lone surrogate), or it is too long."""
    if not isinstance(value, str) or len(value) > MOST_LOGGED:
        return None
    return None if any("\ud800" <= character <= "\udfff" for character in value) else value
