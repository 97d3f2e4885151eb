"""The contract of rewards, tried on a few training rows before anything is loaded.

1. Each call returns one finite number or None per completion, within `reward_timeout_s`.
2. The metric scores reference answers 1; it is an error if more than a tenth score less.
3. The metric scores the reference answer of a row with another answer below 1, in at least half of the rows.
4. The weighted sum is lower for an empty answer, the repeated prompt and noise than for reference answers, and the
   metric is below 1 for each of these in at least half of the rows.

What else a reward does is shown in a table, not judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from rlvr import console
from rlvr.config.recipe import Recipe
from rlvr.config.reward_location import is_remote
from rlvr.console import SlowStep
from rlvr.data.task import Task
from rlvr.dataset_columns import rows_at
from rlvr.environments.proxies import Environments
from rlvr.errors import Level, Problem
from rlvr.formatting import count
from rlvr.scoring.call_result import RewardFailure
from rlvr.scoring.failures import report
from rlvr.scoring.prober import NOISE, Probe, Prober, same_answer, spread_rows, trial_texts
from rlvr.scoring.reward import Reward, apply_gates_and_mask, total
from rlvr.scoring.signature import columns_read, visible_names

if TYPE_CHECKING:
    from rlvr.scoring.scorer import Scorer

# What is scored for each row, with its name in messages. The table has a column for each.
KINDS = {
    "reference": "a reference answer",
    "other": "the reference answer of another row",
    "empty": "an empty answer",
    "prompt": "the repeated prompt",
    "noise": f"the noise {NOISE!r}",
}
WITHOUT_CONTENT = ("empty", "prompt", "noise")
STAND_IN = "The answer is 42."  # where a row has no reference answer
FAST_S = 1e-3  # per completion; a reward that takes no longer is called on every row
MAX_EVERY_ROWS, CHUNK_ROWS = 10_000, 512
MAX_LATE = 2  # timeouts of single calls, after which a reward is not called again
MOST_REFUSED = 0.1  # share of the reference answers that the metric may score below 1
MOST_ACCEPTED = 0.5  # share of the rows; a choice of two is right in half of them by chance
SHOWN_ROWS, SHOWN_CHARACTERS = 5, 80

Probes = dict[str, dict[int, Probe]]  # by kind and row
Values = Mapping[Probe, Sequence[float | None]]  # of all rewards of the scorer; None where a reward failed


def check_contract(
    recipe: Recipe,
    task: Task,
    rewards: Sequence[Reward],
    metric: Reward,
    scorer: Scorer,
    environments: Environments | None = None,
    skipped: Collection[str] = (),
    label: str = "",
) -> list[Problem]:
    """Try the rewards of a task.

    Args:
        rewards: those that apply to the task.
        metric: the reward that decides whether an answer is right. The scorer has it, and the rewards.
        environments: None if the recipe has none. No text is right without a call of a tool, so there are then no
            reference answers.
        skipped: labels of rewards that can't be called.
        label: of the task, if it is one of several.

    Returns:
        Errors and warnings, and a note with the table. A reward that fails is an error, or a warning with
        `on_reward_error: mask`.
    """
    tried = [reward for reward in scorer.rewards if reward in rewards or reward == metric]
    level: Level = "error" if recipe.settings["on_reward_error"] == "raise" else "warning"
    prober = Prober(task, scorer, environments.reset if environments is not None else None)
    return _Contract(task, tried, metric, prober, {*skipped}, level, label).check(rewards)


class _Contract:
    """The state of one trial: what was scored, and which rewards failed."""

    def __init__(
        self,
        task: Task,
        tried: Sequence[Reward],
        metric: Reward,
        prober: Prober,
        failed: set[str],
        level: Level,
        label: str,
    ) -> None:
        self.task, self.tried, self.metric, self.prober = task, tried, metric, prober
        self.failed, self.level, self.label = failed, level, label
        self.problems: list[Problem] = []
        rows = spread_rows(task)
        self.probes: Probes = {kind: {} for kind in KINDS}
        for row in rows:
            for kind, text in trial_texts(task, row).items():
                if kind != "reference" or prober.reset is None:
                    self.probes[kind][row] = Probe(text, row)
        self.probes["other"] = self._references_of_others()

    def _references_of_others(self) -> dict[int, Probe]:
        """For each row the reference answer of another row, if the answers differ and the metric reads them."""
        answer, references = self.task.answer, self.probes["reference"]
        if answer is None or not _reads(self.metric, answer):
            return {}
        answers = {row: self.task.train[row][answer] for row in references}
        probes = {}
        for row in references:
            others = (other for other in references if not same_answer(answers[row], answers[other]))
            if (other := next(others, None)) is not None:
                probes[row] = Probe(references[other].text, row)
        return probes

    def check(self, rewards: Sequence[Reward]) -> list[Problem]:
        probes = [probe for of_kind in self.probes.values() for probe in of_kind.values()]
        with SlowStep("Trying the rewards") as step:
            self._call_singly(step)
            step.text = f"Trying the rewards on {len(probes)} answers at once"
            scored = self.prober.score(probes, self.failed)
        self._add_failures(scored.failures, probes)
        values: dict[Probe, Sequence[float | None]] = dict(zip(probes, scored.values, strict=True))
        if self.prober.reset is None:
            values = {**self._try_every_row(scored.seconds, len(probes)), **values}
        if self.metric.label not in self.failed:
            self.problems += self._of_metric(values)
        if not self.failed:
            self.problems += self._of_sum(rewards, values)
        self.problems.append(self._table(rewards, values, scored.seconds, len(probes)))
        return self.problems

    def _call_singly(self, step: SlowStep) -> None:
        """Score the texts of the first row one at a time, so that a reward that hangs is found soon."""
        late: dict[str, list[str]] = {}
        first = [(kind, next(iter(of_kind.values()))) for kind, of_kind in self.probes.items() if of_kind]
        for kind, probe in first:
            step.text = f"Trying the rewards on {KINDS[kind]} (training row {probe.row})"
            hanging = {label for label, kinds in late.items() if len(kinds) >= MAX_LATE}
            for failure in self.prober.score([probe], self.failed | hanging).failures:
                if failure.status == "unavailable":
                    self._add_failures([failure], [probe])
                elif failure.status == "timeout":
                    late.setdefault(failure.reward, []).append(KINDS[kind])
        for label, texts in late.items():
            name = self._reward(label).name
            self.failed.add(label)
            self.problems.append(
                Problem(
                    f"The reward {name} did not return within {self.prober.scorer.timeout_s:g} s on "
                    f"{' and '.join(texts)} (training row {first[0][1].row}). Give what can hang in it a timeout "
                    "(requests, regular expressions, loops over text), or raise reward_timeout_s if it is only slow.",
                    "reward-timeout",
                    f"rewards.{name}",
                    row=first[0][1].row,
                    level=self.level,
                )
            )

    def _add_failures(self, failures: Sequence[RewardFailure], probes: Sequence[Probe]) -> None:
        of_reward: dict[str, list[RewardFailure]] = {}
        for failure in failures:
            of_reward.setdefault(failure.reward, []).append(failure)
        for label, own in of_reward.items():
            message = report(own).replace("\n\n", "\n")
            place = next((failure.row for failure in own if failure.row is not None), None)
            row = probes[place].row if place is not None else None
            if not all(failure.status == "unavailable" for failure in own):
                message += f"\nIt was tried on {count(len(probes), 'answer')} before training"
                message += (
                    f"; row {place} is {self._kind(probes[place])} (training row {row})." if place is not None else "."
                )
            key = f"rewards.{self._reward(label).name}"
            self.problems.append(Problem(message, "reward-failed", key, row=row, level=self.level))
            self.failed.add(label)

    def _kind(self, probe: Probe) -> str:
        known = (KINDS[kind] for kind, own in self.probes.items() if probe in own.values())
        return next(known, f"the answer {probe.text!r:.{SHOWN_CHARACTERS}}")

    def _reward(self, label: str) -> Reward:
        return next(reward for reward in self.tried if reward.label == label)

    def _try_every_row(self, seconds: Mapping[str, float], probed: int) -> dict[Probe, Sequence[float | None]]:
        """Call fast rewards that read the data on every training row.

        A single bad value in the data would otherwise end the run at the step that draws its row.
        """
        fast = [
            reward
            for reward in self.tried
            if reward.label not in self.failed
            and reward.columns
            and not is_remote(reward.where)
            and seconds[reward.label] <= FAST_S * probed
        ]
        if not fast:
            return {}
        others = {reward.label for reward in self.prober.scorer.rewards} - {reward.label for reward in fast}
        train = self.task.train
        rows = range(0, len(train), max(1, -(-len(train) // MAX_EVERY_ROWS)))
        values: dict[Probe, Sequence[float | None]] = {}
        with SlowStep("Trying the rewards on every training row"):
            for start in range(0, len(rows), CHUNK_ROWS):
                numbers = rows[start : start + CHUNK_ROWS]
                references = [self.task.reference(row) for row in rows_at(train, numbers)]
                probes = [
                    Probe(STAND_IN if text is None else text, row)
                    for row, text in zip(numbers, references, strict=True)
                ]
                scored = self.prober.score(probes, others | self.failed)
                self._add_failures(scored.failures, probes)
                if self.metric in fast and self.metric.label not in self.failed:
                    tried = zip(probes, references, scored.values, strict=True)
                    values |= {probe: row for probe, text, row in tried if text is not None and probe not in values}
        self.probes["reference"] |= {probe.row: probe for probe in values}
        return values

    def _of_metric(self, values: Values) -> Iterator[Problem]:
        name, key = self.metric.name, f"rewards.{self.metric.name}"
        scores = {kind: self._scores(kind, values) for kind in KINDS}
        references = scores["reference"]
        wrong = [row for row, score in references.items() if score < 1]
        if self.probes["reference"] and not references:
            yield Problem(
                f"{name} returns None for all reference answers, so no row could be trained on. Return 1 for a right "
                "answer and 0 for a wrong one. None is for failures of the reward itself.",
                "unscored-rows",
                key,
            )
        elif self.prober.reset is None and not any(_reads(self.metric, column) for column in self._data_columns()):
            yield Problem(
                f"The metric {name} reads no answer from the data, so the accuracy is what {name} says of the text.",
                "blind-metric",
                "evaluation.metric",
                level="note",
            )
        elif len(wrong) > MOST_REFUSED * len(references) and self.task.gold is None:
            yield Problem(
                f"{name} does not score the bare {self.task.answer} 1, so its reference answers are left out. Declare "
                'them in the task, such as `gold: "The answer is {final_answer}."` (docs/data.md).',
                "undeclared-gold",
                key,
                level="note",
            )
            scores["other"] = {}
            self.probes["reference"] = {}  # nor in the sum and the table
        elif wrong:
            text = self.probes["reference"][wrong[0]].text
            yield Problem(
                f"{name} scores the reference answers of {_which(wrong, len(references))} below 1. It returns "
                f"{references[wrong[0]]:.3g} for {text!r:.{SHOWN_CHARACTERS}}. Do the reward and its options fit the "
                "task?",
                "refused-gold",
                key,
                row=wrong[0],
                level="error" if len(wrong) > MOST_REFUSED * len(references) else "warning",
            )
        accepted = [row for row, score in scores["other"].items() if score >= 1]
        if len(accepted) > MOST_ACCEPTED * len(scores["other"]):
            row, answer = accepted[0], self.task.answer
            yield Problem(
                f"{name} scores the reference answer of another row 1 in {_which(accepted, len(scores['other']))}, "
                f"such as {self.probes['other'][row].text!r:.{SHOWN_CHARACTERS}}, where {answer} is "
                f"{self.task.train[row][answer]!r:.{SHOWN_CHARACTERS}}. Compare each completion with {answer} of its "
                "own row.",
                "accepted-another",
                key,
                row=row,
            )
        for kind in WITHOUT_CONTENT:
            accepted = [row for row, score in scores[kind].items() if score >= 1]
            if len(accepted) > MOST_ACCEPTED * len(scores[kind]):
                fix = "Compare only the answer" if kind == "prompt" else "Return 0 for an answer without content"
                yield Problem(
                    f"{name} scores {KINDS[kind]} 1 in {_which(accepted, len(scores[kind]))}. {fix}.",
                    "accepted-noise",
                    key,
                    row=accepted[0],
                    level="warning",
                )

    def _data_columns(self) -> list[str]:
        return [self.task.answer] if self.task.answer else [n for n in self.task.train.column_names if n != "prompt"]

    def _scores(self, kind: str, values: Values) -> dict[int, float]:
        """The metric's scores by row; rows without one are left out."""
        index = self.prober.scorer.rewards.index(self.metric)
        scores = {row: values[probe][index] for row, probe in self.probes[kind].items() if probe in values}
        return {row: score for row in sorted(scores) if (score := scores[row]) is not None}

    def _sums(self, rewards: Sequence[Reward], kind: str, values: Values) -> list[float]:
        """The weighted sums of a kind, after gates and masks."""
        indices = [self.prober.scorer.rewards.index(reward) for reward in rewards]
        rows = [[values[probe][index] for index in indices] for probe in self._first(kind)]
        settled = apply_gates_and_mask(rows, rewards, [self.label] * len(rows))
        return [value for row in settled if (value := total(row, rewards)) is not None]

    def _first(self, kind: str) -> list[Probe]:
        """The probes of the evenly spread rows, on which all rewards were called."""
        return [self.probes[kind][row] for row in self.probes["empty"] if row in self.probes[kind]]

    def _of_sum(self, rewards: Sequence[Reward], values: Values) -> Iterator[Problem]:
        if not self.probes["reference"]:
            return
        reference = self._sums(rewards, "reference", values)
        means = {kind: fmean(sums) for kind in WITHOUT_CONTENT if (sums := self._sums(rewards, kind, values))}
        higher = [kind for kind, mean in means.items() if reference and mean >= fmean(reference)]
        if higher:
            listed = " and ".join(f"{means[kind]:.3g} for {KINDS[kind]}" for kind in higher)
            fault = f"is {listed}, and {fmean(reference):.3g} for reference answers"
        elif not reference:
            fault = "has no value for reference answers, because a reward returns None for each"
        else:
            return
        yield Problem(
            f"The sum of the rewards {fault}, so training would prefer the wrong ones. Check weights, signs and gates.",
            "golds-earn-no-more",
            "rewards",
            level="warning",
        )

    def _table(self, rewards: Sequence[Reward], values: Values, seconds: Mapping[str, float], probed: int) -> Problem:
        """A row per reward: mean scores per kind of text, and the time per completion."""
        lines = []
        for reward in self.tried:
            index = self.prober.scorer.rewards.index(reward)
            means = [_mean([values[probe][index] for probe in self._first(kind)]) for kind in KINDS]
            lines.append([reward.label, *means, f"{1000 * seconds[reward.label] / probed:.2f}"])
        if len(rewards) > 1 and not self.failed:
            lines.append(["weighted sum", *(_mean(self._sums(rewards, kind, values)) for kind in KINDS), ""])
        title = f"{f'{self.label}, ' if self.label else ''}{len(self.probes['empty'])} rows"
        header = [title, "reference", "other", "empty", "prompt", "noise", "ms"]
        message = f"mean score of each reward, by kind of answer:\n{console.table(header, lines)}"
        return Problem(message, "reward-trial", level="note")


def _reads(reward: Reward, column: str) -> bool:
    """Whether a reward gets a column that it can look at."""
    return column in columns_read(reward) or visible_names(reward.function) is None


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{fmean(known):.2f}" if known else "-"


def _which(rows: Sequence[int], of: int) -> str:
    """`3 of 16 rows (12, 40, 77)`, or `all 16 rows`."""
    if len(rows) == of > 1:
        return f"all {of:,} rows"
    shown = ", ".join(map(str, rows[:SHOWN_ROWS]))
    return f"{len(rows):,} of {of:,} rows ({shown}{', …' if len(rows) > SHOWN_ROWS else ''})"
