"""Held-out accuracy, greedily, for a model with or without an adapter, through one code path.

The figures are for the rows named and nothing else: an interval says how far chance alone could have moved them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr import console
from rlvr.errors import InputError
from rlvr.generation import ended, generate, prompt_tokens
from rlvr.plugins import load_reward
from rlvr.recipe import EvaluationSpec, Recipe, RewardSpec
from rlvr.rewarding import Reward, RewardError, settle
from rlvr.scorer import Fault, Scorer, report
from rlvr.task import Task

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SCORED_AT_A_TIME = 256
Z95 = 1.959963984540054  # the 97.5 % quantile of the normal distribution


@dataclass(frozen=True)
class Interval:
    """A 95 % interval, in the unit of what it bounds (0..1 for an accuracy, -1..1 for a difference)."""

    low: float
    high: float


@dataclass(frozen=True)
class Score:
    """How one model did on one set of rows.

    Attributes:
        rows: completions scored by the metric; rows that it could not score are in `unscored` and not here.
        correct: how many of them were right.
        accuracy: correct / rows.
        interval: Wilson's interval of the accuracy.
        unscored: rows that the verifier could not judge through a fault of its own.
        cut_off: fraction of completions that reached the maximal length without ending.
        mean_tokens: mean length of a completion.
        rewards: mean of every reward of the recipe, by its label.
        by_source: accuracy, rows and interval per value of the column `source`.
    """

    rows: int
    correct: int
    accuracy: float
    interval: Interval
    unscored: int
    cut_off: float
    mean_tokens: float
    rewards: dict[str, float] = field(default_factory=dict)
    by_source: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """Trained minus base on the same rows: `points` (−1..1), its 95 % interval, and the rows that changed sides."""

    points: float
    interval: Interval
    gained: int
    lost: int


def wilson(correct: int, rows: int) -> Interval:
    """The 95 % score interval of a proportion (Wilson 1927; Brown, Cai, DasGupta 2001, eq. 4)."""
    if rows == 0:
        return Interval(0.0, 1.0)
    share, z2 = correct / rows, Z95**2
    centre = (share + z2 / (2 * rows)) / (1 + z2 / rows)
    half = Z95 / (1 + z2 / rows) * math.sqrt(share * (1 - share) / rows + z2 / (4 * rows**2))
    # At 0 and at 1 the bound is exact; rounding would leave it at 1e-17 or so.
    return Interval(0.0 if correct == 0 else centre - half, 1.0 if correct == rows else centre + half)


def paired_difference(base: Sequence[bool], trained: Sequence[bool]) -> Difference:
    """The difference of two accuracies on the same rows.

    The interval is Agresti and Min's (2005, "Simple improved confidence intervals for comparing matched proportions"):
    Wald's with half a row added to each of the four cells of the table, which holds its level on few rows.
    """
    gained = sum(after and not before for before, after in zip(base, trained, strict=True))
    lost = sum(before and not after for before, after in zip(base, trained, strict=True))
    rows = len(base)
    if rows == 0:
        return Difference(0.0, Interval(-1.0, 1.0), 0, 0)
    b, c, n = gained + 0.5, lost + 0.5, rows + 2
    centre = (b - c) / n
    half = Z95 * math.sqrt(b + c - (b - c) ** 2 / n) / n
    return Difference((gained - lost) / rows, Interval(max(centre - half, -1.0), min(centre + half, 1.0)), gained, lost)


def metric_of(spec: EvaluationSpec | None, rewards: Sequence[Reward]) -> Reward:
    """The reward that decides whether an answer is right."""
    name = (spec.metric if spec else None) or max(rewards, key=lambda reward: reward.weight).name
    for reward in rewards:
        if name in (reward.name, reward.label):
            return reward
    return load_reward(RewardSpec(name))


def scored_by(rewards: Sequence[Reward], metric: Reward) -> list[Reward]:
    """The rewards that an evaluation needs: the recipe's, and the metric if it is none of them."""
    return [*rewards, *([] if metric in rewards else [metric])]


def evaluate_split(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    recipe: Recipe,
    rewards: Sequence[Reward],
    metric: Reward,
    scorer: Scorer,
    when: str,
) -> tuple[Score, list[dict[str, Any]]]:
    """`evaluate` as the recipe's section `evaluation` says; `when` is shown while it runs ("before", "after")."""
    spec = recipe.evaluation or EvaluationSpec()
    data = task.split(spec.split)
    if spec.rows is not None:
        data = data.select(range(min(spec.rows, len(data))))
    score, records = evaluate(
        model,
        tokenizer,
        data,
        rewards,
        metric,
        scorer,
        batch_size=spec.batch_size,
        max_new_tokens=_most_tokens(recipe),
        stop_strings=task.stop_strings,
        description=f"evaluating {when}",
    )
    if score.rows == 0:
        golds = f"; the first row's final_answer is {data[0]['final_answer']!r}" if "final_answer" in data[0] else ""
        raise InputError(
            f"{metric.label} could score none of the {len(data)} rows of {recipe.task.name}/{spec.split}: it can't "
            f"read their golds{golds}. Mend the data, or name another metric under evaluation."
        )
    return score, records


def about(recipe: Recipe, metric: Reward) -> dict[str, Any]:
    """What an evaluation.json says of how it was made."""
    spec = recipe.evaluation or EvaluationSpec()
    return {
        "recipe": recipe.path.name,
        "model": recipe.settings["model_name_or_path"],
        "task": {"name": recipe.task.name, **recipe.task.options},
        "split": spec.split,
        "metric": metric.label,
        "decoding": "greedy",
        "settings": {"rows": spec.rows, "max_new_tokens": _most_tokens(recipe)},
    }


def _most_tokens(recipe: Recipe) -> int:
    spec = recipe.evaluation or EvaluationSpec()
    return spec.max_new_tokens or recipe.settings.get("max_completion_length", 512)


def heading(content: Mapping[str, Any]) -> str:
    """One sentence on what an evaluation.json measured."""
    rows = next(content[name]["rows"] for name in ("trained", "base") if name in content)
    return (
        f"Accuracy ({content['metric']}) on {rows} held-out rows of {content['task']['name']}/{content['split']}, "
        f"{content['decoding']} decoding:"
    )


def in_short(score: Score) -> str:
    """A score in a few words: "24.4 % right (95 % interval 19.5 … 30.1)"."""
    low, high = 100 * score.interval.low, 100 * score.interval.high
    return f"{100 * score.accuracy:.1f} % right (95 % interval {low:.1f} … {high:.1f})"


def evaluate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    data: Dataset,
    rewards: Sequence[Reward],
    metric: Reward,
    scorer: Scorer,
    *,
    batch_size: int,
    max_new_tokens: int,
    stop_strings: Sequence[str] = (),
    description: str = "evaluating",
) -> tuple[Score, list[dict[str, Any]]]:
    """Completes every row of `data` greedily and scores it.

    Under a distributed launch every process takes a share of the rows, and all get the whole result.

    Args:
        scorer: runs `rewards` and `metric` (`scored_by`).

    Returns:
        The score, and one record per row in the order of `data`: id, prompt, completion, tokens, ended, correct
        (None where the metric could not say) and `rewards/<label>`.

    Raises:
        RewardError: a reward is at fault; on all processes, with the reports of all.
    """
    from accelerate import PartialState
    from accelerate.utils import gather_object

    state = PartialState()
    mine = list(range(state.process_index, len(data), state.num_processes))
    records = _complete(
        model, tokenizer, data, mine, batch_size, max_new_tokens, stop_strings, f"{description} ({len(data)} rows)"
    )
    faults = _score(records, data, rewards, metric, scorer)
    reports = gather_object([report(faults)] if faults else [])
    if reports:
        raise RewardError("\n\n".join(reports))
    records = sorted(gather_object(records), key=lambda record: record["row"])
    return summarise(records, [reward.label for reward in rewards]), records


def _complete(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    data: Dataset,
    rows: list[int],
    batch_size: int,
    max_new_tokens: int,
    stop_strings: Sequence[str],
    description: str,
) -> list[dict[str, Any]]:
    from tqdm import tqdm
    from transformers import GenerationConfig

    eos = _eos_tokens(model, tokenizer)
    config = GenerationConfig(
        max_new_tokens=max_new_tokens, do_sample=False, eos_token_id=eos, pad_token_id=tokenizer.pad_token_id
    )
    prompts = [data[row]["prompt"] for row in rows]
    ids = prompt_tokens(tokenizer, prompts)
    # Prompts of like length together: the padding of a batch is computed for nothing.
    order = sorted(range(len(rows)), key=lambda position: len(ids[position]))
    records = []
    quiet = not (console.is_main() and console.is_terminal())
    with tqdm(total=len(rows), desc=description, unit="row", disable=quiet, leave=False) as bar:
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            completions = generate(
                model, tokenizer, [ids[position] for position in batch], config, stop_strings=stop_strings
            )
            for position, tokens in zip(batch, completions, strict=True):
                records.append(
                    {
                        "row": rows[position],
                        "prompt": prompts[position],
                        "completion": tokenizer.decode(tokens, skip_special_tokens=True),
                        "tokens": len(tokens),
                        "ended": ended(tokenizer, tokens, eos, stop_strings),
                    }
                )
            bar.update(len(batch))
    return records


def _eos_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Every token that ends a turn: the model's own list and the tokenizer's, as GRPOTrainer takes them."""
    declared = model.generation_config.eos_token_id
    tokens = [declared] if isinstance(declared, int) else list(declared or [])
    return tokens if tokenizer.eos_token_id in tokens else [tokenizer.eos_token_id, *tokens]


def _score(
    records: list[dict[str, Any]], data: Dataset, rewards: Sequence[Reward], metric: Reward, scorer: Scorer
) -> list[Fault]:
    """Adds `correct`, the rewards and the identifying columns to records, in place; returns what went wrong."""
    if not records:
        return []
    prompts = [record["prompt"] for record in records]
    # As GRPOTrainer hands completions over: messages for chat prompts, strings for plain ones.
    completions = [
        record["completion"]
        if isinstance(record["prompt"], str)
        else [{"role": "assistant", "content": record["completion"]}]
        for record in records
    ]
    rows = [data[record["row"]] for record in records]
    columns = {name: [row[name] for row in rows] for name in data.column_names if name not in ("prompt", "completion")}
    values: list[list[float | None]] = []
    faults: list[Fault] = []
    for start in range(0, len(records), SCORED_AT_A_TIME):  # a budget is for a batch, not for a split
        part = slice(start, start + SCORED_AT_A_TIME)
        some = {name: column[part] for name, column in columns.items()}
        scored = scorer.score(prompts[part], completions[part], some)
        values += scored.values
        faults += scored.faults
    places = [scorer.rewards.index(reward) for reward in rewards]
    settled = settle([[row[place] for place in places] for row in values], rewards)
    decisive = scorer.rewards.index(metric)
    for number, record in enumerate(records):
        value = values[number][decisive]
        record["correct"] = None if value is None else value >= 1.0
        for reward, item in zip(rewards, settled[number], strict=True):
            record[f"rewards/{reward.label}"] = item
        for name in ("id", "source", "difficulty", "final_answer"):
            if name in columns:
                record[name] = columns[name][number]
    return faults


def summarise(records: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Score:
    """Counts records (see `evaluate`) into a score."""
    judged = [record for record in records if record["correct"] is not None]
    correct = sum(record["correct"] for record in judged)
    sources = sorted({str(record["source"]) for record in judged if record.get("source") is not None})
    by_source = {}
    for source in sources:
        part = [record["correct"] for record in judged if str(record.get("source")) == source]
        by_source[source] = {
            "rows": len(part),
            "accuracy": sum(part) / len(part),
            "interval": asdict(wilson(sum(part), len(part))),
        }
    means = {}
    for label in labels:
        values = [record[f"rewards/{label}"] for record in records if record[f"rewards/{label}"] is not None]
        means[label] = sum(values) / len(values) if values else math.nan
    return Score(
        rows=len(judged),
        correct=correct,
        accuracy=correct / len(judged) if judged else 0.0,
        interval=wilson(correct, len(judged)),
        unscored=len(records) - len(judged),
        cut_off=sum(not record["ended"] for record in records) / max(len(records), 1),
        mean_tokens=sum(record["tokens"] for record in records) / max(len(records), 1),
        rewards=means,
        by_source=by_source,
    )


def compare(base: Sequence[Mapping[str, Any]], trained: Sequence[Mapping[str, Any]]) -> Difference:
    """The paired difference over the rows that both evaluations could judge."""
    pairs = [
        (bool(before["correct"]), bool(after["correct"]))
        for before, after in zip(base, trained, strict=True)
        if before["correct"] is not None and after["correct"] is not None
    ]
    return paired_difference([before for before, _ in pairs], [after for _, after in pairs])


def write_evaluation(
    folder: Path,
    about: Mapping[str, Any],
    results: Mapping[str, tuple[Score, list[dict[str, Any]]]],
) -> dict[str, Any]:
    """Writes `evaluation.json` and one `completions/evaluation_<name>.parquet` per model; returns the JSON's content.

    Args:
        folder: the run directory.
        about: what was evaluated and how (model, split, metric, decoding …).
        results: "base" and/or "trained", each with what `evaluate` returned.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    content: dict[str, Any] = {**about, **{name: asdict(score) for name, (score, _) in results.items()}}
    if {"base", "trained"} <= set(results):
        content["difference"] = asdict(compare(results["base"][1], results["trained"][1]))
    (folder / "completions").mkdir(parents=True, exist_ok=True)
    for name, (_, records) in results.items():
        pq.write_table(pa.Table.from_pylist(records), folder / "completions" / f"evaluation_{name}.parquet")
    (folder / "evaluation.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


def read_results(
    folder: Path, name: str, about: Mapping[str, Any], rewards: Sequence[Reward]
) -> tuple[Score, list[dict[str, Any]]] | None:
    """What `write_evaluation` wrote for a model in an earlier session of the run; None if it was made differently.

    Collective: the main process reads, and all get what it read.
    """
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    records: list[dict[str, Any]] | None = None
    table = folder / "completions" / f"evaluation_{name}.parquet"
    if PartialState().is_main_process and table.is_file():
        try:
            content = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
            if {key: content.get(key) for key in about} == json.loads(json.dumps(about)):
                import pyarrow.parquet as pq

                records = pq.read_table(table).to_pylist()
        except (OSError, ValueError):  # half-written by a session that was killed: it is measured again
            records = None
    shared = broadcast_object_list([records])
    return None if shared[0] is None else (summarise(shared[0], [reward.label for reward in rewards]), shared[0])


def results_table(content: Mapping[str, Any]) -> str:
    """The before/after table of an evaluation.json, for the terminal."""
    names = [name for name in ("base", "trained") if name in content]
    labels = list(content[names[0]]["rewards"])
    rows = []
    for name in names:
        score = content[name]
        low, high = 100 * score["interval"]["low"], 100 * score["interval"]["high"]
        rows.append(
            [
                name,
                f"{100 * score['accuracy']:.1f} %",
                f"{low:.1f} … {high:.1f}",
                f"{score['correct']}/{score['rows']}",
                *(f"{score['rewards'][label]:.2f}" for label in labels),
                f"{100 * score['cut_off']:.0f} %",
                f"{score['mean_tokens']:.0f}",
            ]
        )
    text = console.table(["", "accuracy", "95 % interval", "right", *labels, "cut off", "tokens"], rows)
    if "difference" in content:
        gain = content["difference"]
        low, high = 100 * gain["interval"]["low"], 100 * gain["interval"]["high"]
        text += (
            f"\n\n  trained − base: {100 * gain['points']:+.1f} points (95 % interval {low:+.1f} … {high:+.1f}; "
            f"{gain['gained']} rows gained, {gain['lost']} lost)"
        )
    return text
