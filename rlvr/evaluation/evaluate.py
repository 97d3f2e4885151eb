"""Complete and score held-out rows: one code path for base and trained models, greedy decoding and samples."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlvr.console import ProgressBar
from rlvr.data.mixture import COLUMN as TASK
from rlvr.data.task import ENDED, OPENED, RECORDED_COLUMNS
from rlvr.dataset_columns import column_values
from rlvr.evaluation.answer_cache import AnswerCache, AnswerKey, digest_of_prompt
from rlvr.evaluation.conversations import Player
from rlvr.evaluation.engines import Completion, Decoding, Engine
from rlvr.modeling.generation import prompt_tokens, template_opens_think
from rlvr.reward_audit.reward_call import completion_argument
from rlvr.scoring.call_result import RewardFailure
from rlvr.scoring.environment_reward import ENVIRONMENTS
from rlvr.scoring.failures import report
from rlvr.scoring.registry import companion_function
from rlvr.scoring.reward import Metrics, Reward, RewardError, apply_gates, metrics_of
from rlvr.scoring.scorer import Scorer
from rlvr.scoring.signature import columns_read
from rlvr.verifiers.completion_text import with_opened_think

if TYPE_CHECKING:
    from datasets import Dataset

MAX_KEPT_CHARACTERS = 2000  # of a value that stays with an answer
SCORING_BATCH = 256  # the batch timeout of rewards is for a batch, not for a split
Records = list[dict[str, Any]]
Pair = tuple[int, int]  # a row's number, and that of its sample


def measure(
    engine: Engine,
    data: Dataset,
    rewards: Sequence[Reward],
    metrics: Metrics,
    scorer: Scorer,
    decoding: Decoding,
    *,
    batch_size: int,
    samples: int = 1,
    description: str = "evaluating",
    cache: AnswerCache | None = None,
    lenient: bool = False,
    template_options: Mapping[str, Any] | None = None,
    player: Player | None = None,
) -> Records:
    """Complete every row of `data` and score it.

    Under a distributed launch every process takes a share of the rows, and all get the whole result.

    Args:
        scorer: runs `rewards` and `metrics` (`rewards_to_run`).
        samples: completions a row.
        description: of the progress bar; empty for none.
        cache: answers of earlier sessions, which are not generated again; new ones are added.
        lenient: whether to add what is right whatever its form, by `match_leniently` of the metric's file.
        template_options: the recipe's `chat_template_kwargs`.
        player: plays the environments of the rows; None where the recipe has none.

    Returns:
        One record per row and sample, in the order of `data`: row, id, prompt, completion, tokens, ended, correct
        (None where the metric could not say), `rewards/<label>`, formatted and lenient (see `Score`); and the number of
        the sample where there are several, and the task of a mixture. Where environments are played, the completion is
        a list of messages, and `stopped` and `tool_seconds` are added (docs/environments.md).

    Raises:
        RewardError: a reward failed; on all processes, with the reports of all.
    """
    from accelerate import PartialState, utils

    state = PartialState()
    share = slice(state.process_index, None, state.num_processes)
    title = f"{description} ({len(data)} rows)" if description else ""
    prompts = list(column_values(data, "prompt"))
    ids = prompt_tokens(engine.tokenizer, prompts, template_options) if prompts else []
    scorer.think_opened = bool(prompts) and template_opens_think(engine.tokenizer, prompts[0], template_options)
    answers = _complete_rows(engine, data, ids, decoding, batch_size, samples, title, cache, share, player)
    records = [_record(row, sample, prompts[row], answer) for (row, sample), answer in sorted(answers.items())]
    failures = _score(records, answers, data, rewards, metrics, scorer, player)
    reports = utils.gather_object([report(failures)] if failures else [])
    if reports:
        raise RewardError("\n\n".join(reports))
    if lenient:
        texts = [answer.text for _, answer in sorted(answers.items())]
        _match_leniently(records, list(map(with_opened_think, texts)) if scorer.think_opened else texts, metrics)
    records = sorted(utils.gather_object(records), key=lambda record: (record["row"], record["sample"]))
    if samples == 1:
        for record in records:
            del record["sample"]
    return records


def _complete_rows(
    engine: Engine,
    data: Dataset,
    ids: Sequence[list[int]],
    decoding: Decoding,
    batch_size: int,
    samples: int,
    description: str,
    cache: AnswerCache | None,
    share: slice,
    player: Player | None,
) -> dict[Pair, Completion]:
    """Get this process's share of the answers, from the cache or from the engine."""
    row_keys = _row_keys(ids, data if player is not None else None)
    # Long prompts first, so that a batch that doesn't fit into memory fails at once. Prompts of similar length
    # together, since padding is computed too. Batches don't depend on the cache: in a later session a row has the
    # neighbours and the random numbers that it would have had in the first.
    order = sorted(range(len(ids)), key=lambda row: (-len(ids[row]), row))
    all_pairs = [(row, sample) for row in order for sample in range(samples)]
    pairs = all_pairs[share]
    keys: dict[Pair, AnswerKey] = {(row, sample): (row_keys[row], sample) for row, sample in pairs}
    if cache is not None:
        all_keys = [(row_keys[row], sample) for row, sample in all_pairs]
        cache.recall(all_keys, list(keys.values()), batch_size)
    cached = cache.answers if cache is not None else {}
    answers = {pair: cached[key] for pair, key in keys.items() if key in cached}
    with ProgressBar(description, len(pairs)) as progress:
        progress.skip(len(answers))
        for start in range(0, len(pairs), batch_size):
            batch = pairs[start : start + batch_size]
            missing = [pair for pair in batch if pair not in answers]
            if not missing:
                continue
            # A seed that depends on the batch's rows and on nothing that was sampled before.
            seed = (zlib.crc32(repr([keys[pair] for pair in batch]).encode()) + decoding.seed) % 2**32
            if player is None:
                completions = engine.complete([ids[row] for row, _ in missing], decoding, seed)
            else:
                completions = player.play(engine, [data[row] for row, _ in missing], missing, decoding, seed)
            if cache is not None:
                cache.add([keys[pair] for pair in missing], completions)
            answers.update(zip(missing, completions, strict=True))
            progress.update(len(missing))
    if cache is not None:
        cache.share(list(keys.values()))
    return answers


def _record(row: int, sample: int, prompt: Any, answer: Completion) -> dict[str, Any]:
    record = {"row": row, "sample": sample, "prompt": prompt, "completion": answer.text}
    record |= {"tokens": answer.tokens, "ended": answer.ended}
    played = answer.conversation
    if played is not None:
        record |= {"prompt": played.prompt, "completion": played.messages, "stopped": played.stopped}
        record["tool_seconds"] = json.dumps(played.tool_seconds)
    return record


def _row_keys(ids: Sequence[Sequence[int]], data: Dataset | None) -> list[str]:
    """A key for each row: that of its prompt, and a number where several rows have that prompt.

    Args:
        data: the rows, where an environment reads their other columns.
    """
    counts: Counter[str] = Counter()
    keys = []
    for number, prompt in enumerate(ids):
        key = digest_of_prompt(prompt)
        if data is not None:
            key += f"-{zlib.crc32(json.dumps(data[number], default=repr, sort_keys=True).encode()):08x}"
        counts[key] += 1
        keys.append(key if counts[key] == 1 else f"{key}.{counts[key]}")
    return keys


def _score(
    records: Records,
    answers: Mapping[Pair, Completion],
    data: Dataset,
    rewards: Sequence[Reward],
    metrics: Metrics,
    scorer: Scorer,
    player: Player | None,
) -> list[RewardFailure]:
    """Add `correct`, `formatted`, the rewards and the identifying columns to records; return the failures."""
    if not records:
        return []
    prompts = [record["prompt"] for record in records]
    completions = [completion_argument(record) for record in records]
    rows = data.select([record["row"] for record in records])
    names = [name for name in data.column_names if name not in ("prompt", "completion")]
    columns = {name: list(column_values(rows, name)) for name in names}
    columns[ENDED] = [record["ended"] for record in records]
    for record in records if scorer.think_opened else ():
        record[OPENED] = True
    values: list[list[float | None]] = []
    failures: list[RewardFailure] = []
    for start in range(0, len(records), SCORING_BATCH):
        batch = slice(start, start + SCORING_BATCH)
        batch_columns = {name: column[batch] for name, column in columns.items()}
        if player is not None:
            pairs = [(record["row"], record["sample"]) for record in records[batch]]
            played = [conversation for pair in pairs if (conversation := answers[pair].conversation) is not None]
            batch_columns[ENVIRONMENTS] = player.replay([data[row] for row, _ in pairs], pairs, played)
        scored = scorer.score(prompts[batch], completions[batch], batch_columns)
        values += scored.values if player is None else player.mask_failures(scored.values)
        failures += scored.failures
    indices = [scorer.rewards.index(reward) for reward in rewards]
    kept = _kept_columns(data, metrics)
    tasks = [""] * len(records) if "" in metrics else columns[TASK]
    gated = apply_gates([[row[index] for index in indices] for row in values], rewards, tasks)
    for number, (record, row, task) in enumerate(zip(records, values, tasks, strict=True)):
        if task:  # of a mixture
            record[TASK] = task
        value = row[scorer.rewards.index(metrics[task])]
        record["correct"] = None if value is None else value >= 1.0
        for reward, item in zip(rewards, gated[number], strict=True):
            record[f"rewards/{reward.label}"] = item
        of_format = [reward for reward in rewards if reward.label.endswith("_format") and reward.applies(task)]
        formats = [item for reward in of_format if (item := row[scorer.rewards.index(reward)]) is not None]
        is_scored = len(formats) == len(of_format) > 0
        record["formatted"] = all(item >= 1.0 for item in formats) if is_scored else None
        for name in kept:
            if name not in record:
                record[name] = columns[name][number]
    return failures


def _match_leniently(records: Records, texts: Sequence[str], metrics: Metrics) -> None:
    """Add `lenient` to the records: None unless their metric's file defines `match_leniently`."""
    for record in records:
        record["lenient"] = None
    for task, metric in metrics.items():
        match = companion_function(metric.function, "match_leniently")
        rows = [row for row, record in enumerate(records) if record.get(TASK, "") == task]
        if match is None or not rows:
            continue
        correct = [records[row]["correct"] for row in rows]
        golds = [records[row].get("final_answer") for row in rows]
        matches = match([texts[row] for row in rows], correct, final_answer=golds)
        for row, matched in zip(rows, matches, strict=True):
            records[row]["lenient"] = matched


def _kept_columns(data: Dataset, metrics: Metrics) -> list[str]:
    """The columns that stay with an answer: those that identify its row, and those that the metric reads.

    Only if their values are short, and text or numbers of one type, unlike test cases: scripts/score.py finds such
    columns in the task.
    """
    read = set[str]().union(*map(columns_read, metrics_of(metrics)))
    return [
        name for name in data.column_names if name in RECORDED_COLUMNS or (name in read and _is_plain(list(data[name])))
    ]


def _is_plain(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    is_short = all(isinstance(value, str | int | float) and len(str(value)) <= MAX_KEPT_CHARACTERS for value in known)
    return is_short and len({type(value) for value in known}) == 1
