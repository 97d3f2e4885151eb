"""One code path for every model that is evaluated: base and trained, before and after, greedily and by samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlvr.config.recipe import EvaluationSpec, Recipe, RewardSpec
from rlvr.console import ProgressBar
from rlvr.data.task import Task
from rlvr.evaluation.answer_cache import AnswerCache, Place, prompt_key
from rlvr.evaluation.engines import Completion, Decoding, Engine, TransformersEngine
from rlvr.evaluation.lenient_match import lenient_reading
from rlvr.evaluation.scores import Score, summarise
from rlvr.modeling.generation import prompt_tokens
from rlvr.scoring.registry import load_reward
from rlvr.scoring.reward import Reward, RewardError, apply_gates_and_mask
from rlvr.scoring.scorer import RewardFailure, Scorer, report

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SCORED_AT_A_TIME = 256
Records = list[dict[str, Any]]


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


def held_out_rows(task: Task, recipe: Recipe) -> Dataset:
    """The rows that the recipe's section `evaluation` asks for, the first ones of its split."""
    spec = recipe.evaluation or EvaluationSpec()
    data = task.split(spec.split)
    return data if spec.rows is None else data.select(range(min(spec.rows, len(data))))


def greedy(task: Task, recipe: Recipe) -> Decoding:
    """Greedy decoding as the recipe's section `evaluation` says."""
    spec = recipe.evaluation or EvaluationSpec()
    most = spec.max_new_tokens or recipe.settings.get("max_completion_length", 512)
    return Decoding(most, tuple(task.stop_strings), seed=int(recipe.settings.get("seed", 42)))


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
) -> tuple[Score, Records]:
    """Completes every row of `data` greedily and scores it: `measure`, in short."""
    records = measure(
        TransformersEngine(model, tokenizer),
        data,
        rewards,
        metric,
        scorer,
        Decoding(max_new_tokens, tuple(stop_strings)),
        batch_size=batch_size,
        description=description,
    )
    return summarise(records, [reward.label for reward in rewards]), records


def measure(
    engine: Engine,
    data: Dataset,
    rewards: Sequence[Reward],
    metric: Reward,
    scorer: Scorer,
    decoding: Decoding,
    *,
    batch_size: int,
    samples: int = 1,
    description: str = "evaluating",
    kept: AnswerCache | None = None,
    second_reading: bool = False,
) -> Records:
    """Completes every row of `data` and scores it.

    Under a distributed launch every process takes a share of the rows, and all get the whole result.

    Args:
        scorer: runs `rewards` and `metric` (`scored_by`).
        samples: completions a row.
        kept: answers of earlier sessions, which aren't asked for again; what comes is added.
        second_reading: whether to say what is right whatever its form (rlvr/evaluation/lenient_match.py).

    Returns:
        One record per row and sample, in the order of `data`: row, id, prompt, completion, tokens, ended, correct
        (None where the metric could not say), `rewards/<label>`, formatted and lenient (see `Score`); and sample, the
        number of it, where there are several.

    Raises:
        RewardError: a reward is at fault; on all processes, with the reports of all.
    """
    from accelerate import PartialState
    from accelerate.utils import gather_object

    state = PartialState()
    records = _answer(
        engine,
        data,
        decoding,
        batch_size,
        samples,
        f"{description} ({len(data)} rows)",
        kept,
        (state.process_index, state.num_processes),
    )
    faults = _score(records, data, rewards, metric, scorer)
    reports = gather_object([report(faults)] if faults else [])
    if reports:
        raise RewardError("\n\n".join(reports))
    if second_reading:
        _read_again(records)
    records = sorted(gather_object(records), key=lambda record: (record["row"], record["sample"]))
    if samples == 1:
        for record in records:
            del record["sample"]
    return records


def _answer(
    engine: Engine,
    data: Dataset,
    decoding: Decoding,
    batch_size: int,
    samples: int,
    description: str,
    kept: AnswerCache | None,
    share: tuple[int, int],
) -> Records:
    """What the model says to this process's share of the rows, from what is kept and from the engine."""
    prompts = list(data["prompt"])
    ids = prompt_tokens(engine.tokenizer, prompts) if prompts else []
    places = _places(ids)
    # Long prompts first: what doesn't fit into memory shows at once. Prompts of like length together: the padding of a
    # batch is computed for nothing. The batches don't depend on what is kept, so that a row that is asked in a later
    # session has the neighbours, and the random numbers, that it would have had in the first.
    order = sorted(range(len(prompts)), key=lambda row: (-len(ids[row]), row))
    asked = [(row, sample) for row in order for sample in range(samples)][share[0] :: share[1]]
    done: dict[tuple[int, int], Completion] = {}
    if kept is not None:
        for row, sample in asked:
            before = kept.known.get((places[row], sample))
            if before is not None:
                done[row, sample] = before
    with ProgressBar(description, len(asked)) as progress:
        progress.skip(len(done))
        for start in range(0, len(asked), batch_size):
            batch = asked[start : start + batch_size]
            missing = [pair for pair in batch if pair not in done]
            if not missing:
                continue
            keys: list[Place] = [(places[row], sample) for row, sample in batch]
            completions = engine.complete([ids[row] for row, _ in missing], decoding, _seed(decoding.seed, keys))
            if kept is not None:
                kept.add([(places[row], sample) for row, sample in missing], completions)
            done.update(zip(missing, completions, strict=True))
            progress.update(len(missing))
    return [
        {
            "row": row,
            "sample": sample,
            "prompt": prompts[row],
            "completion": answer.text,
            "tokens": answer.tokens,
            "ended": answer.ended,
        }
        for (row, sample), answer in sorted(done.items())
    ]


def _places(ids: Sequence[Sequence[int]]) -> list[str]:
    """A key for each row: of its prompt, and which of the rows with that prompt it is."""
    seen: dict[str, int] = {}
    keys = []
    for prompt in ids:
        key = prompt_key(prompt)
        seen[key] = seen.get(key, 0) + 1
        keys.append(key if seen[key] == 1 else f"{key}.{seen[key]}")
    return keys


def _seed(seed: int, keys: Sequence[Place]) -> int:
    """The seed of a batch, which depends on what is in it and on nothing that was sampled before."""
    import zlib

    return (zlib.crc32(repr(keys).encode()) + seed) % 2**32


def _score(
    records: Records, data: Dataset, rewards: Sequence[Reward], metric: Reward, scorer: Scorer
) -> list[RewardFailure]:
    """Adds `correct`, `formatted`, the rewards and the identifying columns to records; returns what went wrong."""
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
    columns = {}
    for name in data.column_names:
        if name not in ("prompt", "completion"):
            column = list(data[name])
            columns[name] = [column[record["row"]] for record in records]
    values: list[list[float | None]] = []
    faults: list[RewardFailure] = []
    for start in range(0, len(records), SCORED_AT_A_TIME):  # a budget is for a batch, not for a split
        part = slice(start, start + SCORED_AT_A_TIME)
        some = {name: column[part] for name, column in columns.items()}
        scored = scorer.score(prompts[part], completions[part], some)
        values += scored.values
        faults += scored.faults
    places = [scorer.rewards.index(reward) for reward in rewards]
    settled = apply_gates_and_mask([[row[place] for place in places] for row in values], rewards)
    decisive = scorer.rewards.index(metric)
    formats = [scorer.rewards.index(reward) for reward in rewards if reward.label.endswith("_format")]
    for number, record in enumerate(records):
        value = values[number][decisive]
        record["correct"] = None if value is None else value >= 1.0
        for reward, item in zip(rewards, settled[number], strict=True):
            record[f"rewards/{reward.label}"] = item
        said = [values[number][place] for place in formats]
        record["formatted"] = (
            all(item >= 1.0 for item in said if item is not None) if said and None not in said else None
        )
        for name in ("id", "source", "difficulty", "final_answer"):
            if name in columns:
                record[name] = columns[name][number]
    return faults


def _read_again(records: Records) -> None:
    """Adds `lenient` to records: right whatever its form."""
    texts = [record["completion"] for record in records]
    golds = [record.get("final_answer") for record in records]
    readings = lenient_reading(texts, golds, [record["correct"] for record in records])
    for record, reading in zip(records, readings, strict=True):
        record["lenient"] = reading
