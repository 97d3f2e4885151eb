"""Attack the rewards of a recipe with named texts, copies of the prompts and contents in forms: scripts/red_team.py."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path

from rlvr import console
from rlvr.artifacts.directory import write_json
from rlvr.config.recipe import Recipe
from rlvr.data.io import Row
from rlvr.data.mixture import COLUMN as TASK
from rlvr.data.task import Task
from rlvr.errors import InputError, writing
from rlvr.reward_audit.attacks import FORMS, Text, contents_in_forms, named_attacks, render
from rlvr.reward_audit.completions import read_completions
from rlvr.reward_audit.copying import count_copied, try_copies
from rlvr.reward_audit.correctness import by_gain, measure_earnings
from rlvr.reward_audit.findings import FILE, NEGLIGIBLE, PAID, Finding, Findings
from rlvr.reward_audit.target import FIRST_ROWS, Target
from rlvr.scoring.environment_reward import ENVIRONMENTS
from rlvr.scoring.metric_choice import choose_metrics
from rlvr.scoring.registry import load_rewards, load_tasks
from rlvr.scoring.reward import Reward
from rlvr.scoring.scorer import Scorer
from rlvr.verifiers.completion_text import completion_text

MAX_FOUND = 20
MAX_TIMEOUT_S, MAX_BATCH_S, START_TIMEOUT_S = 10.0, 60.0, 60.0  # of the rewards, for a row, a batch, their imports
MAX_ALIKE = 2  # findings that are paid alike
MAX_COMPLETIONS = 40  # of a run
VERDICTS = ("holds", "lenient", "untested", "broken")  # from good to bad


def red_team(recipe: Recipe, minutes: float, run_dir: Path | None, file: Path | None) -> int:
    """Attack the rewards, mixed tasks one by one; return the exit code.

    Args:
        run_dir: a run, whose completions are tried too, and which gets the findings.
        file: for the findings.
    """
    with console.SlowStep(f"Loading the rewards and the task {recipe.task_name}"):
        rewards, task = load_rewards(recipe.rewards), load_tasks(recipe.tasks)
        completions = [] if run_dir is None else read_completions(str(run_dir)).rows
    console.error(f"{recipe.path}: attacking {', '.join(reward.label for reward in rewards)} …")
    parts = attack_recipe(recipe, task, rewards, seconds=60 * minutes, completions=completions)
    for label, findings in parts.items():
        _show(f"{recipe.path}{f', {label}' if label else ''}", findings)
    worst = max(parts.values(), key=lambda findings: VERDICTS.index(findings.verdict))
    content = {**worst.as_dict(), "verdicts": {label: one.verdict for label, one in parts.items() if label}}
    for path in filter(None, (file, run_dir and run_dir / FILE)):
        with writing(path, "Name another file."):
            write_json(path, content)
        console.info(f"  {path}")
    return 1 if worst.verdict in ("broken", "untested") else 0


def _show(name: str, findings: Findings) -> None:
    tried = f"{findings.texts:,} texts scored, {findings.rows} training rows, {console.duration(findings.seconds)}"
    console.info(console.bold(f"{name}: {tried}"))
    if findings.unpaid_reference is None:
        console.info(f"  a right answer earns {findings.right:.3g}\n")
    console.info("\n".join([findings.table(), "", *(f"  {line}" for line in findings.sentences())]))
    colour = console.red if findings.verdict == "broken" else console.bold
    console.info(f"\n  {colour(f'Verdict: {findings.verdict}')}\n")


def attack_recipe(
    recipe: Recipe,
    task: Task,
    rewards: Sequence[Reward],
    *,
    seconds: float = 120.0,
    completions: Sequence[Row] = (),
) -> dict[str, Findings]:
    """Attack the rewards of a recipe; those of mixed tasks task by task, by label, each with its part of the time.

    Args: as `attack`.
        completions: rows of a run's files of completions.
    """
    metrics = choose_metrics(recipe, rewards)
    found = {}
    for label, part in task.parts.items():
        applying = [reward for reward in rewards if reward.applies(label)]
        own = [row for row in completions if row.get(TASK, label) == label]
        with scorer_for(recipe, applying) as scorer:
            found[label] = attack(
                part,
                applying,
                scorer,
                seconds=seconds / len(task.parts),
                completions=list(dict.fromkeys(completion_text(row["completion"]) for row in reversed(own))),
                copied=count_copied(own, metrics[label]),
            )
    return found


def scorer_for(recipe: Recipe, rewards: Sequence[Reward]) -> Scorer:
    """A scorer whose batches end soon: texts that make a reward slow are to be expected here.

    Raises:
        InputError: a reward needs environments, which are played and not attacked.
    """
    for reward in rewards:
        if ENVIRONMENTS in signature(reward.function).parameters:
            raise InputError(
                f"The reward {reward.name} scores the calls in an environment, which no text has. Attack the "
                "other rewards: --rewards '[…]'.",
                kind="needs-environment",
                key=f"rewards.{reward.name}",
            )
    timeout_s = min(recipe.settings["reward_timeout_s"], MAX_TIMEOUT_S)
    return Scorer(rewards, timeout_s=timeout_s, batch_timeout_s=MAX_BATCH_S, start_timeout_s=START_TIMEOUT_S)


def attack(
    task: Task,
    rewards: Sequence[Reward],
    scorer: Scorer,
    *,
    seconds: float = 120.0,
    completions: Sequence[str] = (),
    copied: tuple[int, int] = (0, 0),
) -> Findings:
    """Find texts that earn the rewards without being right.

    The named attacks and the copies of the prompts are always tried. Then come the contents in other forms and the
    completions, as long as there is time.

    Args:
        rewards: of the recipe, the first ones of the scorer.
        completions: texts of a model.
        copied: right completions of a run, and how many of them are copies (`count_copied`).

    Raises:
        InputError: no reward can be called, or the rewards fail on all texts.
    """
    started = time.monotonic()
    target = Target(task, rewards, scorer)
    references = [text for text in target.references if text is not None]
    named = named_attacks(target.frequent, references, target.reference_forms())
    tried = dict(zip(named, target.try_texts(list(named.values())), strict=True))
    if target.all_failed:
        raise InputError(
            f"The rewards fail on every text ({', '.join(target.failures)}). `run_grpo.py --check` says why.",
            kind="reward-failed",
            key="rewards",
        )
    right = target.right_totals()
    copying = None
    if not target.pays_no_reference:
        copying = try_copies(target, right, [("", ""), *target.reference_forms()])
    if copying is not None:
        copying = replace(copying, right=copied[0], copied=copied[1])
    chance = max(measure_earnings(target, right, text, tried[name]).guessed for name, text in named.items())
    found = [
        Finding(measure_earnings(target, right, text, tried[name], chance), name, render(text, target.seen[0]))
        for name, text in named.items()
    ]
    more: dict[Text, str] = {(text,): "a completion" for text in completions[:MAX_COMPLETIONS]}
    more |= dict.fromkeys(contents_in_forms(target.frequent, FORMS), "a content in a form")
    untried = list(more)
    while untried and time.monotonic() - started <= seconds:
        texts, untried = untried[: target.texts_at_once], untried[target.texts_at_once :]
        of_texts = zip(texts, target.try_texts(texts, range(FIRST_ROWS)), strict=True)
        rewarded = [
            text for text, one in of_texts if measure_earnings(target, right, text, one, chance).gain >= NEGLIGIBLE
        ]
        for text, trials in zip(rewarded, target.try_texts(rewarded), strict=True):
            earnings = measure_earnings(target, right, text, trials, chance)
            found.append(Finding(earnings, more[text], render(text, target.seen[0])))
    found.sort(key=lambda finding: by_gain(finding.earnings))
    return Findings(
        [reward.label for reward in rewards],
        len(target.rows),
        target.texts,
        time.monotonic() - started,
        sum(right) / len(right),
        _different(found)[:MAX_FOUND],
        target.failures,
        references[0] if target.pays_no_reference else None,
        copying,
    )


def _different(found: Sequence[Finding]) -> list[Finding]:
    """The first, so the best, findings of each kind of payment."""
    kept: dict[tuple[float, ...], dict[str, Finding]] = {}
    for finding in found:
        earnings = finding.earnings
        alike = kept.setdefault((round(earnings.gain, 1), *(paid > PAID for paid in earnings.paid)), {})
        if len(alike) < MAX_ALIKE:
            alike.setdefault(finding.example.strip(), finding)
    return sorted((one for alike in kept.values() for one in alike.values()), key=lambda one: by_gain(one.earnings))
