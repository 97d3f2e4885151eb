"""Load multiple-choice questions: ARC-Challenge (Clark et al., 2018), MMLU, or files in one of these forms.

    {"question": "…", "choices": {"text": ["…", "…"], "label": ["A", "B"]}, "answerKey": "B"}     ARC
    {"question": "…", "choices": ["…", "…"], "answer": 1}                                        MMLU

The letters of a prompt are always A, B, … . ARC's labels 1, 2, … become letters.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr import Task
from rlvr.data.input_checks import missing_column_error
from rlvr.data.io import Row, read_splits
from rlvr.data.splits import to_datasets
from rlvr.data.usable_rows import usable_rows
from rlvr.errors import InputError
from rlvr.verifiers.choices import LETTERS, reference_fault, reference_letter

HUB_DATASET, HUB_SUBSET = "allenai/ai2_arc", "ARC-Challenge"
INSTRUCTION = 'Think step by step. Then write "Answer:" and the letter of the right choice, on a line of its own.'
# A choice that names others would be wrong in another order.
_NAMES_OTHERS = re.compile(
    r"\b(?:above|below|all of|none of|both|neither|either|[A-E] (?:and|or) [A-E]|I+ (?:and|only))\b", re.IGNORECASE
)


def multiple_choice(
    *,
    path: str | None = None,
    subset: str | None = None,
    shuffle_choices: bool = False,
    test_fraction: float = 0.1,
    seed: int = 42,
) -> Task:
    """Load questions as chat prompts.

    Args:
        path: a file, a folder with train and test files, or a dataset of the hub, such as cais/mmlu (`subset: all`).
            MMLU's auxiliary_train is the training split. None downloads allenai/ai2_arc, or uses the cached copy.
        subset: the configuration of a dataset of the hub. The default is ARC-Challenge if `path` is None.
        shuffle_choices: put the choices of each row in a random order, unless a choice names others ("all of the
            above"). The most frequent letter is then a poor guess.
        test_fraction: share of the rows to hold out if the data has no test split.
        seed: seed of all random choices.

    Rows have `prompt`, `question`, `choices` (texts), `final_answer` (a letter), `source` and `id`.
    """
    name, source = "multiple_choice", path or HUB_DATASET
    raw = read_splits(name, path, HUB_DATASET, subset or (HUB_SUBSET if path is None else None))
    if "train" not in raw and "auxiliary_train" in raw:
        raw = {**raw, "train": raw["auxiliary_train"]}

    _check_counted_from_0(source, raw)

    def convert(row: Row, number: int, split: str) -> Row | str:
        if not {"answerKey", "answer"} & row.keys():
            hint = 'MMLU calls it "answer".'
            raise missing_column_error(f"{source}, {split} row {number}", "answerKey", row, hint, row=number)
        choices, gold = _read(row)
        if fault := reference_fault(gold, choices):
            return fault
        question = str(row["question"]).strip()
        letter = reference_letter(gold, choices)
        assert letter is not None  # no fault
        right = choices[LETTERS.index(letter)]
        if shuffle_choices and not any(_NAMES_OTHERS.search(choice) for choice in choices):
            random.Random(f"{seed}/choices/{split}/{number}").shuffle(choices)
        listed = "\n".join(f"{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=False))
        return {
            "prompt": [{"role": "user", "content": f"{question}\n\n{listed}\n\n{INSTRUCTION}"}],
            "question": question,
            "choices": choices,
            "final_answer": LETTERS[choices.index(right)],
            "source": source,
            "id": f"{Path(source).name}-{split}-{row.get('id', number)}",
        }

    splits, notes = usable_rows(
        name,
        source,
        raw,
        ("question", "choices"),
        convert,
        test_fraction=test_fraction,
        seed=seed,
    )
    return Task(**to_datasets(**splits), notes=tuple(notes), gold=_gold)


def _check_counted_from_0(source: str, splits: Mapping[str, Sequence[Row]]) -> None:
    """Raise an error if answers count from 1, because nearly all rows would have the next choice as the answer."""
    for split, rows in splits.items():
        numbers = [
            (row["answer"], len(row["choices"]))
            for row in rows
            if type(row.get("answer")) is int and isinstance(row.get("choices"), list)
        ]
        if numbers and min(number for number, _ in numbers) >= 1 and any(number == size for number, size in numbers):
            raise InputError(
                f"{source}, {split}: the numbers in answer count from 1, since none is 0 and one is the number of "
                "choices. Count from 0, as MMLU does, or give letters.",
                kind="invalid-row",
                key="task",
            )


def _read(row: Row) -> tuple[list[Any], Any]:
    """Return the choices of a row and the letter of the correct choice, or another value if there is none."""
    choices = row["choices"]
    gold = row.get("answerKey", row.get("answer"))
    texts, labels = (choices.get("text"), choices.get("label")) if isinstance(choices, Mapping) else (choices, None)
    texts = [choice.strip() if isinstance(choice, str) else choice for choice in texts or []]
    if labels is not None:
        gold = LETTERS[labels.index(gold)] if gold in labels and labels.index(gold) < len(LETTERS) else None
    elif isinstance(gold, int):
        gold = LETTERS[gold] if 0 <= gold < len(LETTERS) else None
    elif gold in texts:
        gold = LETTERS[texts.index(gold)]
    return texts, gold


def _gold(row: Mapping[str, Any]) -> str:
    return f"Here is why.\nAnswer: {row['final_answer']}"
