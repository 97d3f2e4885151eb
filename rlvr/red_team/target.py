"""The rewards under attack: score texts on some rows of the task, in the rewards' own workers, within a budget.

A trial scores a text with the gold columns of a row. It has the prompt of the row that the text was made for, which is
that row, or another one: then the text can't know what is right.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.data.mixture import COLUMN as TASK
from rlvr.data.task import ANSWER_COLUMNS, Task
from rlvr.errors import InputError
from rlvr.red_team.attacks import Seen, Text, is_constant, render
from rlvr.scoring.reward import Reward, apply_gates_and_mask, total
from rlvr.scoring.scorer import Scorer
from rlvr.scoring.signature import columns_read, visible_names
from rlvr.verifiers.completion_text import completion_text

ROWS = 16  # of the training split, spread evenly over it
SCREENING_ROWS = 4  # on which most texts of a search are tried
READ_ROWS = 2000  # for the most frequent answers
MAX_BATCH, SLOW_BATCH_S = 128, 8.0  # texts per call of the rewards; fewer, if a call takes longer
MAX_LATE = 3  # calls that time out; texts after them are not scored
STEP = -1  # what functions see as trainer_state.global_step: training begins at 0
MAX_GOLD_CHARACTERS = 60
FREQUENT = 200  # answers
# Columns that no gold depends on, whatever reads them.
NOT_GOLD = frozenset(
    {TASK, "prompt", "question", "id", "source", "difficulty", "environment", "language", "entry_point"}
)
_NUMBERS = ("target", "label")
REFERENCE_FORMS = (
    "#### {}",
    "#### The final answer is {}",
    "\\boxed{{{}}}",
    "<think>…</think>\n<answer>{}</answer>",
    "The answer is {}.",
    "Answer: {}",
    "{}",
)


@dataclass(frozen=True)
class Trial:
    """A text with the reward that it got.

    Attributes:
        text: as the rewards saw it.
        made_for, scored_with: rows (indices into `Target.rows`) whose prompt and whose gold columns it had.
        gold: of the row it was scored with; two rows with the same gold have the same text here.
        total: the weighted sum, gates included. 0 if a reward failed or could not score the row.
        paid: weighted and gated, a number for each reward of the recipe.
        failed: whether a reward failed on it.
    """

    text: str
    made_for: int
    scored_with: int
    gold: str
    total: float
    paid: tuple[float, ...]
    failed: bool = False


class Target:
    """The rewards of a recipe on some rows of its task.

    Args:
        rewards: of the recipe, in its order. The scorer has at least these; its others are not called.

    Attributes:
        pays_no_reference: after `right_totals`, whether rewards that read the data paid for none of the right answers.
    """

    def __init__(self, task: Task, rewards: Sequence[Reward], scorer: Scorer, rows: int = ROWS) -> None:
        self.task, self.rewards, self.scorer = task, list(rewards), scorer
        self.evaluations = 0
        self.pays_no_reference = False
        self.failures: dict[str, str] = {}  # a text on which each kind of failure occurred
        self._known: dict[tuple[str, int, int], Trial] = {}
        self._others = {reward.label for reward in scorer.rewards} - {reward.label for reward in rewards}
        self._batch, self._late = 16, 0
        columns = task.train.column_names
        spread = range(0, len(task.train), max(1, len(task.train) // (4 * rows)))
        candidates = [dict(task.train[number]) for number in spread]
        self.gold_columns = _gold_columns(self.rewards, candidates, columns)
        references = [_reference(task, row) for row in candidates]
        keys = _gold_keys(candidates, references, self.gold_columns)
        chosen = _different_first(keys, rows)
        self.rows = [candidates[number] for number in chosen]
        self.golds = [keys[number] for number in chosen]
        self.references = [references[number] for number in chosen]
        short = Counter(answer for row in candidates for answer in short_golds(row, self.gold_columns))
        for row in task.train.select(range(min(READ_ROWS, len(task.train)))).select_columns(self.gold_columns):
            short.update(short_golds(row, self.gold_columns))
        self.frequent = [answer for answer, _ in short.most_common(FREQUENT)]
        # The row whose gold columns a text for a row is also scored with: the next one with another gold.
        count = len(self.rows)
        self.other = [
            next((other % count for other in range(row + 1, row + count) if self.golds[other % count] != gold), None)
            for row, gold in enumerate(self.golds)
        ]
        self.seen = [self._seen(row) for row in range(count)]

    def _seen(self, row: int) -> Seen:
        prompt = self.rows[row]["prompt"]
        text = prompt if isinstance(prompt, str) else completion_text([{**prompt[-1], "role": "assistant"}])
        other = self.other[row] if self.other[row] is not None else (row + 1) % len(self.rows)
        assert other is not None
        short = short_golds(self.rows[other], self.gold_columns)
        return Seen(
            text,
            str(self.rows[row].get("entry_point") or "solve"),
            (self.references[other] or [""])[0],
            short[0] if short else "",
        )

    def try_texts(
        self, texts: Sequence[Text], rows: Sequence[int] | None = None, *, exchanged: bool = True
    ) -> list[list[Trial]]:
        """The trials of each text on rows: with the row's own gold, and with another's if the text depends on the row.

        Args:
            rows: indices; by default all.
            exchanged: whether to try a text with another row's gold.
        """
        numbers = range(len(self.rows)) if rows is None else rows
        wanted: list[list[tuple[str, int, int]]] = []
        for text in texts:
            keys = []
            for row in numbers:
                rendered, other = render(text, self.seen[row]), self.other[row]
                keys.append((rendered, row, row))
                if exchanged and other is not None and not is_constant(text):
                    keys.append((rendered, row, other))
            wanted.append(keys)
        self._score([key for keys in wanted for key in keys])
        return [[self._known[key] for key in keys] for keys in wanted]

    def try_rendered(self, texts: Sequence[tuple[str, int]], *, exchanged: bool = False) -> list[Trial]:
        """The trials of texts, each for a row, with the row's own gold, or with another one's."""
        keys = [
            (text, row, other if exchanged and (other := self.other[row]) is not None else row) for text, row in texts
        ]
        self._score(keys)
        return [self._known[key] for key in keys]

    def _score(self, keys: Sequence[tuple[str, int, int]]) -> None:
        self.evaluations += len(keys)  # those that are known too: a stage that finds nothing new must end
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        while new:
            batch, new = new[: self._batch], new[self._batch :]
            started = time.monotonic()
            self._known.update(zip(batch, self._trials(batch), strict=True))
            elapsed_s = time.monotonic() - started
            if elapsed_s > SLOW_BATCH_S:
                self._batch = max(self._batch // 2, 1)
            elif elapsed_s < SLOW_BATCH_S / 4:
                self._batch = min(self._batch * 2, MAX_BATCH)

    def _trials(self, batch: Sequence[tuple[str, int, int]]) -> list[Trial]:
        prompts = [self.rows[made_for]["prompt"] for _, made_for, _ in batch]
        completions: list[Any] = [
            [{"role": "assistant", "content": text}] if self.task.is_chat else text for text, _, _ in batch
        ]
        names = [name for name in self.task.train.column_names if name != "prompt"]
        columns = {name: [self.rows[scored_with][name] for _, _, scored_with in batch] for name in names}
        ids = [
            [zlib.crc32(text[at : at + 4].encode("utf-8", "replace")) for at in range(0, len(text), 4)]
            for text, _, _ in batch
        ]
        if self._late >= MAX_LATE:  # a text that hangs is a finding; waiting for more of them finds nothing new
            nothing = (0.0,) * len(self.rewards)
            return [Trial(text, i, j, self.golds[j], 0.0, nothing, failed=True) for text, i, j in batch]
        scored = self.scorer.score(prompts, completions, columns, completion_ids=ids, step=STEP, skipped=self._others)
        self._late += any(failure.kind == "timeout" for failure in scored.failures)
        for failure in scored.failures:
            if failure.kind == "unavailable" and failure.row is None:
                raise InputError(
                    f"The reward {failure.reward} can't be called: {failure.message}", kind="reward-failed"
                )
            if failure.kind != "unavailable":  # else the batch's time went to another text
                text = batch[failure.row][0] if failure.row is not None else ""
                self.failures.setdefault(f"{failure.reward}: {failure.kind}", text)
        failed = {failure.row for failure in scored.failures}
        tasks = [self.rows[scored_with].get(TASK) for _, _, scored_with in batch]
        indices = [self.scorer.rewards.index(reward) for reward in self.rewards]
        values = [[row[index] for index in indices] for row in scored.values]
        settled = apply_gates_and_mask(values, self.rewards, tasks)
        trials = []
        for number, ((text, made_for, scored_with), row) in enumerate(zip(batch, settled, strict=True)):
            paid = tuple((value or 0.0) * reward.weight for value, reward in zip(row, self.rewards, strict=True))
            gold = self.golds[scored_with]
            is_failed = number in failed or None in failed
            trials.append(Trial(text, made_for, scored_with, gold, total(row, self.rewards) or 0.0, paid, is_failed))
        return trials

    def reference_forms(self) -> list[tuple[str, str]]:
        """What stands around the answer in the reference answers of the first rows."""
        forms: dict[tuple[str, str], None] = {}
        for row, references in zip(self.rows[:SCREENING_ROWS], self.references, strict=False):
            for gold in short_golds(row, self.gold_columns)[:1]:
                before, found, after = references[0].rpartition(gold) if references else ("", "", "")
                if found:
                    forms[before, after] = None
        return list(forms)[:2]

    @property
    def texts(self) -> int:
        """How many were scored; a text counts once for each row."""
        return len(self._known)

    @property
    def all_failed(self) -> bool:
        return all(trial.failed for trial in self._known.values())

    def right_totals(self) -> list[float]:
        """What a right answer earns in each row: its best reference answer, which becomes the first one.

        Without a reference answer that earns anything, it is the sum of the positive weights, less those of penalties:
        rewards that read no column and have paid for no text. So call it after some attacks.
        """
        trials = self.try_rendered([(text, row) for row, texts in enumerate(self.references) for text in texts])
        totals = {(trial.made_for, trial.text): trial.total for trial in trials}
        for row, texts in enumerate(self.references):
            texts.sort(key=lambda text: -totals[row, text])
        best = [totals[row, texts[0]] if texts else 0.0 for row, texts in enumerate(self.references)]
        earned = [value for value in best if value > 0]
        self.pays_no_reference = bool(trials) and not earned and any(reward.columns for reward in self.rewards)
        most = [max(trial.paid[index] for trial in self._known.values()) for index in range(len(self.rewards))]
        weights = [reward.weight for reward, paid in zip(self.rewards, most, strict=True) if reward.columns or paid > 0]
        usual = sum(earned) / len(earned) if earned else sum(weight for weight in weights if weight > 0)
        return [value if value > 0 else usual or 1.0 for value in best]


def _gold_columns(rewards: Sequence[Reward], rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """The columns that say what is right: `final_answer`, or what the rewards read, less what the prompt shows."""
    if "final_answer" in columns and len({str(row["final_answer"]) for row in rows}) > 1:
        return ["final_answer"]
    read = {name for reward in rewards for name in visible_names(reward.function) or columns_read(reward)}
    named = [name for name in columns if name in read - NOT_GOLD and not _is_shown(rows[0], name)]
    return named or [name for name in (*ANSWER_COLUMNS, "tests") if name in columns][:1]


def _is_shown(row: Mapping[str, Any], name: str) -> bool:
    """Whether a column is a part of the prompt, such as the question."""
    return isinstance(row[name], str) and len(row[name]) > 20 and row[name] in str(row["prompt"])


def _gold_keys(rows: Sequence[Mapping[str, Any]], references: Sequence[list[str]], columns: Sequence[str]) -> list[str]:
    """A text for the gold of each row. Without gold columns each row counts as another one: nothing says what is right.

    Columns may differ where the answers don't (metadata of the problem): then the reference answers decide.
    """
    if not columns:
        return [str(number) for number in range(len(rows))]
    keys = [json.dumps([row[name] for name in columns], default=str, sort_keys=True) for row in rows]
    firsts = [texts[0] if texts else "" for texts in references]
    return firsts if all(firsts) and 1 < len(set(firsts)) < len(set(keys)) else keys


def _different_first(keys: Sequence[str], wanted: int) -> list[int]:
    """Indices of `wanted` rows, spread evenly; the screening rows, which come first, have different golds."""
    spread = list(range(0, len(keys), max(1, len(keys) // wanted)))[:wanted]
    first: dict[str, int] = {}
    for number in [*spread, *range(len(keys))]:
        first.setdefault(keys[number], number)
    screening = list(first.values())[:SCREENING_ROWS]
    return [*screening, *(number for number in spread if number not in screening)][:wanted]


def _reference(task: Task, row: Mapping[str, Any]) -> list[str]:
    """Texts that should be right: the task's gold, or the row's answer in the usual forms."""
    gold = written_gold(task, row)
    if gold is not None:
        return [str(gold)]
    column = answer_column(row)
    return [form.format(row[column]) for form in REFERENCE_FORMS] if column is not None else []


def written_gold(task: Task, row: Mapping[str, Any]) -> str | None:
    """The task's gold, unless it is the bare answer, which is one of `REFERENCE_FORMS`."""
    gold = task.gold(row) if task.gold is not None else None
    return None if gold is not None and task.answer is not None and gold == row.get(task.answer) else gold


def answer_column(row: Mapping[str, Any], read: Collection[str] = ()) -> str | None:
    """The column with the row's right answer, text or a number, by its usual names; None if there is none.

    Args:
        read: columns that a reward reads, which go first.
    """
    names = sorted(ANSWER_COLUMNS, key=lambda name: name not in read)
    is_alone = len(row.keys() & set(read) - NOT_GOLD) == 1
    return next((name for name in names if _is_answer(name, row.get(name), is_alone and name in read)), None)


def _is_answer(name: str, value: object, is_read_alone: bool) -> bool:
    # Beside another column, a number in these may be what an answer must lead to, or stand for the name of a class.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (isinstance(value, str) and value != "") or (is_number and (is_read_alone or name not in _NUMBERS))


def short_golds(row: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """Short answers in the gold columns of a row: text, numbers, and outputs of tests."""
    found = []
    for name in columns:
        value = row[name]
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Mapping):
                one = one.get("output", one.get("expected"))
            if isinstance(one, str | int | float) and 0 < len(str(one).strip()) <= MAX_GOLD_CHARACTERS:
                found.append(str(one).strip())
    return found


class Budget:
    """Texts to score and seconds to spend. Each stage of an exercise has a part of what is left.

    Args:
        evaluations: how many texts the target may score from now on.
    """

    def __init__(self, target: Target, evaluations: float, seconds: float) -> None:
        self._target = target
        self._most = target.evaluations + evaluations
        self._end = time.monotonic() + seconds

    def part(self, share: float) -> Budget:
        left_s = self._end - time.monotonic()
        return Budget(self._target, share * (self._most - self._target.evaluations), share * left_s)

    @property
    def is_spent(self) -> bool:
        return self._target.evaluations >= self._most or time.monotonic() >= self._end
