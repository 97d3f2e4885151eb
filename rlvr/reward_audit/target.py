"""The rewards under attack: score texts on some rows of the task, in the rewards' own workers.

A trial scores a text with the columns of a row. It has the prompt of the row that the text was made for, which is that
row, or another one: then the text can't know what is right.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.data.mixture import COLUMN as TASK
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.reward_audit.attacks import Seen, Text, is_constant, render
from rlvr.scoring.prober import PROBED_ROWS, Probe, Prober, last_message, spread_rows
from rlvr.scoring.reward import Reward, apply_gates_and_mask, total
from rlvr.scoring.scorer import Scorer

FIRST_ROWS = 4  # on which most texts are tried; the other rows only if they earn something
READ_ROWS = 2000  # for the most frequent answers
MAX_BATCH, BATCH_S = 128, 4.0  # texts per call of the rewards, and seconds that it may take
MAX_LATE = 3  # calls that time out; texts after them are not scored
MAX_ANSWER_CHARACTERS = 60
FREQUENT = 200  # answers


@dataclass(frozen=True)
class Trial:
    """A text with the reward that it got.

    Attributes:
        text: as the rewards saw it.
        made_for, scored_with: rows (indices into `Target.rows`) whose prompt and whose columns it had.
        answer: of the row it was scored with; two rows with the same answer have the same text here.
        total: the weighted sum, gates included. 0 if a reward failed or could not score the row.
        paid: weighted and gated, a number for each reward of the recipe.
        failed: whether a reward failed on it.
    """

    text: str
    made_for: int
    scored_with: int
    answer: str
    total: float
    paid: tuple[float, ...]
    failed: bool = False


class Target:
    """The rewards of a recipe on some rows of its task.

    Args:
        rewards: of the recipe, in its order. The scorer has at least these; its others are not called.

    Attributes:
        knows_answers: whether the task or a column of the rewards says what is right.
        pays_no_reference: after `right_totals`, whether none of the reference answers earned anything.
    """

    def __init__(self, task: Task, rewards: Sequence[Reward], scorer: Scorer) -> None:
        self.task, self.rewards, self.scorer = task, list(rewards), scorer
        self.pays_no_reference = False
        self.failures: dict[str, str] = {}  # a text on which each kind of failure occurred
        self._known: dict[tuple[str, int, int], Trial] = {}
        self._skipped = {reward.label for reward in scorer.rewards} - {reward.label for reward in rewards}
        self._prober = Prober(task, scorer)
        self._batch, self._late = 16, 0
        self.answer_columns = _answer_columns(task, self.rewards)
        self._numbers = self._rows_to_attack()
        self.rows = [dict(task.train[number]) for number in self._numbers]
        keys = [self._answer_key(row) for row in self.rows]
        self.knows_answers = any(keys)
        self.answers = [key or str(number) for number, key in enumerate(keys)]
        self.references = [task.reference(row) for row in self.rows]
        first = task.train.select(range(min(READ_ROWS, len(task.train)))).select_columns(self.answer_columns)
        short = Counter(answer for row in first for answer in short_answers(row, self.answer_columns))
        self.frequent = [answer for answer, _ in short.most_common(FREQUENT)]
        # The row whose columns a text for a row is also scored with: the next one with another answer.
        count = len(self.rows)
        self.other = [
            next((at % count for at in range(row + 1, row + count) if self.answers[at % count] != answer), None)
            for row, answer in enumerate(self.answers)
        ]
        self.seen = [self._seen(row) for row in range(count)]

    def _rows_to_attack(self) -> list[int]:
        """Training rows, spread evenly. The first ones have different answers, if the task has as many."""
        candidates = spread_rows(self.task, 4 * PROBED_ROWS)
        first: dict[str, int] = {}
        for number in candidates:
            first.setdefault(self._answer_key(self.task.train[number]), number)
        chosen = [*list(first.values())[:FIRST_ROWS], *spread_rows(self.task)]
        return list(dict.fromkeys(chosen))[:PROBED_ROWS]

    def _answer_key(self, row: Mapping[str, Any]) -> str:
        """A text for the answer of a row; "" where nothing says what is right.

        Tests may differ where the programs don't, so without a column of answers the reference answer goes first.
        """
        if self.task.answer is None and (reference := self.task.reference(row)) is not None:
            return reference
        known = [row[name] for name in self.answer_columns]
        return json.dumps(known, default=str, sort_keys=True) if known else ""

    def _seen(self, row: int) -> Seen:
        own = self.rows[row]
        other = self.other[row] if self.other[row] is not None else (row + 1) % len(self.rows)
        assert other is not None
        short = short_answers(self.rows[other], self.answer_columns)
        entry_point, neighbour = str(own.get("entry_point") or "solve"), self.references[other] or ""
        return Seen(last_message(own), entry_point, neighbour, short[0] if short else "")

    def try_texts(self, texts: Sequence[Text], rows: Sequence[int] | None = None) -> list[list[Trial]]:
        """The trials of each text on rows: with the row's own columns, and with another's if it depends on the row.

        Args:
            rows: indices; by default all.
        """
        numbers = range(len(self.rows)) if rows is None else rows
        wanted: list[list[tuple[str, int, int]]] = []
        for text in texts:
            keys = []
            for row in numbers:
                rendered, other = render(text, self.seen[row]), self.other[row]
                keys.append((rendered, row, row))
                if other is not None and not is_constant(text):
                    keys.append((rendered, row, other))
            wanted.append(keys)
        self._score([key for keys in wanted for key in keys])
        return [[self._known[key] for key in keys] for keys in wanted]

    def try_rendered(self, texts: Sequence[tuple[str, int]], *, exchanged: bool = False) -> list[Trial]:
        """The trials of texts, each for a row, with the row's own columns, or with another one's."""
        keys = [
            (text, row, other if exchanged and (other := self.other[row]) is not None else row) for text, row in texts
        ]
        self._score(keys)
        return [self._known[key] for key in keys]

    def _score(self, keys: Sequence[tuple[str, int, int]]) -> None:
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        while new:
            batch, new = new[: self._batch], new[self._batch :]
            started = time.monotonic()
            self._known.update(zip(batch, self._trials(batch), strict=True))
            seconds = max(time.monotonic() - started, 1e-3)
            self._batch = max(1, min(MAX_BATCH, int(len(batch) * BATCH_S / seconds)))

    def _trials(self, batch: Sequence[tuple[str, int, int]]) -> list[Trial]:
        if self._late >= MAX_LATE:  # a text that hangs is a finding; waiting for more of them finds nothing new
            nothing = (0.0,) * len(self.rewards)
            return [Trial(text, i, j, self.answers[j], 0.0, nothing, failed=True) for text, i, j in batch]
        probes = [Probe(text, self._numbers[i], self._numbers[j]) for text, i, j in batch]
        scored = self._prober.score(probes, self._skipped)
        self._late += any(failure.status == "timeout" for failure in scored.failures)
        for failure in scored.failures:
            if failure.status == "unavailable" and failure.row is None:
                raise InputError(
                    f"The reward {failure.reward} can't be called: {failure.message}", kind="reward-failed"
                )
            if failure.status != "unavailable":  # else the batch's time went to another text
                text = batch[failure.row][0] if failure.row is not None else ""
                self.failures.setdefault(f"{failure.reward}: {failure.status}", text)
        failed = {failure.row for failure in scored.failures}
        indices = [self.scorer.rewards.index(reward) for reward in self.rewards]
        values = [[row[index] for index in indices] for row in scored.values]
        settled = apply_gates_and_mask(values, self.rewards, [self.rows[j].get(TASK) for _, _, j in batch])
        trials = []
        for number, ((text, made_for, scored_with), row) in enumerate(zip(batch, settled, strict=True)):
            paid = tuple((value or 0.0) * reward.weight for value, reward in zip(row, self.rewards, strict=True))
            answer, is_failed = self.answers[scored_with], number in failed or None in failed
            trials.append(Trial(text, made_for, scored_with, answer, total(row, self.rewards) or 0.0, paid, is_failed))
        return trials

    def reference_forms(self) -> list[tuple[str, str]]:
        """What stands around the answer in the reference answers of the first rows."""
        forms: dict[tuple[str, str], None] = {}
        for row, reference in zip(self.rows[:FIRST_ROWS], self.references, strict=False):
            for answer in short_answers(row, self.answer_columns)[:1]:
                before, found, after = (reference or "").rpartition(answer)
                if found:
                    forms[before, after] = None
        return list(forms)[:2]

    @property
    def texts_at_once(self) -> int:
        """How many texts to try on the first rows in one batch."""
        return max(1, self._batch // FIRST_ROWS)

    @property
    def texts(self) -> int:
        """How many were scored; a text counts once for each row."""
        return len(self._known)

    @property
    def all_failed(self) -> bool:
        return all(trial.failed for trial in self._known.values())

    def right_totals(self) -> list[float]:
        """What a right answer earns in each row: its reference answer.

        Where no reference answer earns anything, it is the sum of the positive weights.
        """
        texts = [(text, row) for row, text in enumerate(self.references) if text is not None]
        totals = {trial.made_for: trial.total for trial in self.try_rendered(texts)}
        earned = [value for value in totals.values() if value > 0]
        self.pays_no_reference = bool(totals) and not earned and any(reward.columns for reward in self.rewards)
        weights = sum(reward.weight for reward in self.rewards if reward.weight > 0)
        usual = sum(earned) / len(earned) if earned else weights or 1.0
        return [value if (value := totals.get(row, 0.0)) > 0 else usual for row in range(len(self.rows))]


def _answer_columns(task: Task, rewards: Sequence[Reward]) -> list[str]:
    """The columns that say what is right: the task's answer, or what the rewards can't be called without."""
    if task.answer is not None:
        return [task.answer]
    return sorted({column for reward in rewards for column in reward.columns} & set(task.train.column_names))


def short_answers(row: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """Short answers in the columns of a row: text, numbers, and outputs of tests."""
    found = []
    for name in columns:
        value = row[name]
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Mapping):
                one = one.get("output", one.get("expected"))
            if isinstance(one, str | int | float) and 0 < len(str(one).strip()) <= MAX_ANSWER_CHARACTERS:
                found.append(str(one).strip())
    return found
