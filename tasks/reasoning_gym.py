"""Generate problems with any dataset of the reasoning-gym package: puzzles, logic, algebra, games.

Each dataset has a verifier, which rewards/reasoning_gym.py uses. The package's gallery lists names and options:
https://github.com/open-thought/reasoning-gym/blob/main/GALLERY.md
"""

# This file has the package's name. `import reasoning_gym` finds the package as long as tasks/ is not in sys.path.
from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Literal

from rlvr import InputError, Task
from rlvr.data.input_checks import check_integer
from rlvr.data.io import Row, pack
from rlvr.data.reasoning_gym import make_dataset
from rlvr.data.row_conversion import build_messages
from rlvr.data.splits import question_key, to_datasets

INSTRUCTION = "Solve the problem step by step. Then give the answer, and nothing else, in <answer> </answer> tags."
# Seeds of test items start here, seeds of training items at 0, so no seed is used for both.
TEST_SEEDS = 1_000_000_000
# Maximal items generated for each row: small datasets repeat themselves.
TRIES_PER_ROW = 20


def reasoning_gym(
    *,
    dataset: str | None = None,
    train_rows: int = 2000,
    test_rows: int = 200,
    options: dict[str, Any] | None = None,
    instruction_role: Literal["system", "user"] = "system",
    seed: int = 42,
) -> Task:
    """Generate problems of one dataset, as chat prompts.

    Args:
        dataset: required: its name in reasoning-gym, such as "chain_sum". "composite" mixes several (options:
            {datasets: [{name: chain_sum, weight: 1, config: {}}, …]}).
        train_rows, test_rows: number of problems, all with different questions. A note says if the dataset has fewer.
        options: the configuration of the dataset, such as {min_terms: 2, max_digits: 3}.
        instruction_role: role of the message with the answer format. "user" is for templates without a system turn.
        seed: seed of the problems. Training and test problems never share a question.

    Rows have `prompt`, `question`, `final_answer`, `source`, `id` and `entry`. `final_answer` is the package's
    solution, or "" if there is only a verifier. The reward passes `entry` to the verifier.
    """
    if dataset is None:
        raise InputError(
            "Task reasoning_gym: the option dataset is missing. Add one, such as dataset: chain_sum.",
            kind="missing-key",
            key="dataset",
        )
    check_integer("reasoning_gym", "train_rows", train_rows, 1)
    check_integer("reasoning_gym", "test_rows", test_rows, 1)
    check_integer("reasoning_gym", "seed", seed, 0, TEST_SEEDS // 2)
    options = options or {}
    seen: set[str] = set()
    splits: dict[str, list[Row]] = {}
    notes = [f"Made with reasoning-gym's {dataset}, options {options or 'as they come'}, seed {seed}."]
    # Test first, so that common questions are dropped from the training rows.
    for split, wanted, first_seed in (("test", test_rows, seed + TEST_SEEDS), ("train", train_rows, seed)):
        rows: list[Row] = []
        for index, item in enumerate(_items(dataset, options, wanted, first_seed)):
            key = question_key(item["question"])
            if key not in seen:
                seen.add(key)
                rows.append(_row(item, dataset, options, f"{dataset}-{split}-{index}", instruction_role))
            if len(rows) == wanted:
                break
        if not rows:
            raise InputError(
                f"Task reasoning_gym: with these options the dataset {dataset} has no {split} problems that "
                "the test split lacks. Lower test_rows, or choose harder problems in options.",
                kind="empty-data",
                key="test_rows",
            )
        if len(rows) < wanted:
            notes.append(f"{dataset} made only {len(rows):,} different {split} problems of the {wanted:,} asked for.")
        splits[split] = rows
    return Task(
        **to_datasets(train=splits["train"], validation=[], test=splits["test"]),
        notes=tuple(notes),
        gold=lambda row: f"<answer>{row['final_answer']}</answer>" if row["final_answer"] else None,
    )


def _items(dataset: str, options: dict[str, Any], wanted: int, first_seed: int) -> Iterator[dict[str, Any]]:
    source = make_dataset(dataset, options, size=wanted * TRIES_PER_ROW, seed=first_seed)
    try:
        yield from itertools.islice(source, wanted * TRIES_PER_ROW)
    except Exception as error:
        raise InputError(
            f"Task reasoning_gym: the dataset {dataset} failed with the options {options}: {type(error).__name__}: "
            f"{error}. Change the options.",
            kind="invalid-value",
            key="options",
        ) from error


def _row(item: dict[str, Any], dataset: str, options: dict[str, Any], row_id: str, instruction_role: str) -> Row:
    question = item["question"].strip()
    try:
        entry = pack({"dataset": dataset, "options": options, "item": item})
    except TypeError as error:
        raise InputError(
            f"Task reasoning_gym: a problem of {dataset} cannot be stored in a column ({error}). Choose another "
            "dataset.",
            kind="invalid-value",
            key="dataset",
        ) from error
    return {
        "prompt": build_messages(INSTRUCTION, question, instruction_role),
        "question": question,
        "final_answer": "" if item["answer"] is None else str(item["answer"]),
        "source": f"reasoning_gym/{dataset}",
        "id": row_id,
        "entry": entry,
    }
