"""Any dataset of the reasoning-gym package by its name: puzzles, logic, algebra, games, made up as many as are wanted.

Each comes with a verifier of its own; rewards/reasoning_gym.py scores with it. The list of names, and the options of
each, are in the package's gallery: https://github.com/open-thought/reasoning-gym/blob/main/GALLERY.md
"""

# This file has the package's name. `import reasoning_gym` still finds the package, as long as tasks/ is on no path.
from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Literal

from rlvr.data.io import Row, as_datasets, check_choice, check_whole, pack, question_key
from rlvr.data.reasoning_gym import make_dataset
from rlvr.data.task import Task
from rlvr.errors import InputError

INSTRUCTION = (
    "Solve the problem step by step. Then give the answer, and nothing but the answer, between tags like this: "
    "<answer>your answer</answer>"
)
# Test items are seeded from here on, and training items from 0, so no seed is used for both.
TEST_SEEDS = 1_000_000_000
# How many items are looked at, at most, for each row that is wanted: small datasets repeat themselves.
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
    """Chat prompts with the problems of one dataset.

    Args:
        dataset: must be given: its name in reasoning-gym, such as "chain_sum". "composite" mixes several (options:
            {datasets: [{name: chain_sum, weight: 1, config: {}}, …]}).
        train_rows, test_rows: how many problems, all with different questions. A dataset that can't make so many
            different ones gives fewer, which the notes say.
        options: the dataset's own configuration, such as {min_terms: 2, max_digits: 3}.
        instruction_role: who states the answer format; "user" is for templates that know no system turn.
        seed: of the problems. Training and test problems never share a question.

    Rows have `prompt`, `question`, `final_answer` (the package's own solution; "" where it only gives a verifier),
    `source`, `id`, and `entry`, from which the reward rebuilds the problem for the verifier.
    """
    if dataset is None:
        raise InputError("Task reasoning_gym: the option dataset is missing. Write one, such as dataset: chain_sum.")
    check_whole("reasoning_gym", "train_rows", train_rows, 1)
    check_whole("reasoning_gym", "test_rows", test_rows, 1)
    check_whole("reasoning_gym", "seed", seed, 0, TEST_SEEDS // 2)
    check_choice("reasoning_gym", "instruction_role", instruction_role, ("system", "user"))
    options = options or {}
    seen: set[str] = set()
    splits: dict[str, list[Row]] = {}
    notes = [f"Made with reasoning-gym's {dataset}, options {options or 'as they come'}, seed {seed}."]
    # Test first: what the two have in common is missing from training then, and not from the test.
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
                f"Task reasoning_gym: the dataset {dataset} makes no {split} problems other than those of the test "
                "split with these options. Ask for fewer test_rows, or for harder problems in options."
            )
        if len(rows) < wanted:
            notes.append(f"{dataset} made only {len(rows):,} different {split} problems of the {wanted:,} asked for.")
        splits[split] = rows
    return Task(**as_datasets(train=splits["train"], validation=[], test=splits["test"]), notes=tuple(notes))


def _items(dataset: str, options: dict[str, Any], wanted: int, first_seed: int) -> Iterator[dict[str, Any]]:
    source = make_dataset(dataset, options, size=wanted * TRIES_PER_ROW, seed=first_seed)
    try:
        yield from itertools.islice(source, wanted * TRIES_PER_ROW)
    except Exception as error:
        raise InputError(
            f"Task reasoning_gym: the dataset {dataset} failed to make a problem with the options {options}: "
            f"{type(error).__name__}: {error}. Some options of a dataset don't go together."
        ) from error


def _row(item: dict[str, Any], dataset: str, options: dict[str, Any], row_id: str, instruction_role: str) -> Row:
    question = item["question"].strip()
    if instruction_role == "system":
        prompt = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": question}]
    else:
        prompt = [{"role": "user", "content": f"{INSTRUCTION}\n\n{question}"}]
    try:
        entry = pack({"dataset": dataset, "options": options, "item": item})
    except TypeError as error:
        raise InputError(
            f"Task reasoning_gym: a problem of {dataset} can't be carried in a column of the data ({error}). "
            "Choose another dataset."
        ) from error
    return {
        "prompt": prompt,
        "question": question,
        "final_answer": "" if item["answer"] is None else str(item["answer"]),
        "source": f"reasoning_gym/{dataset}",
        "id": row_id,
        "entry": entry,
    }
