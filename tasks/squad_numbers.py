"""Load SQuAD's questions with a number as the answer, for the environment retrieval (Rajpurkar et al., 2016).

The task writes the paragraphs of all articles to a folder of text, for the search. The reward math_correctness can
verify a number. The held-out questions are SQuAD's validation split, about other articles.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr import Task
from rlvr.data.input_checks import require_columns
from rlvr.data.io import Row, read_splits
from rlvr.data.splits import drop_held_out, require_training_rows, to_datasets

HUB_DATASET = "rajpurkar/squad"
COLUMNS = ("title", "context", "question", "answers")
_NUMBER = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?|\d+(\.\d+)?")
INSTRUCTION = "Search the articles with the tool search. End with the answer, a number, like this: #### 42"


def squad_numbers(
    *,
    path: str | None = None,
    folder: str = "data/squad",
) -> Task:
    """Load questions, and write the articles.

    Args:
        path: a folder with train and validation files, or a dataset of the hub, with SQuAD's columns. None downloads
            the dataset, or uses the cached copy.
        folder: the folder for the articles. Set the environment's option `folder` to the same folder.

    Rows have `prompt`, `question`, `final_answer`, `title`, `source` ("squad") and `id`.
    """
    name = "squad_numbers"
    raw = read_splits(name, path, HUB_DATASET)
    articles: dict[str, dict[str, None]] = {}
    splits: dict[str, list[Row]] = {"validation": []}
    for split, theirs in (("test", "validation"), ("train", "train")):
        splits[split] = []
        for number, row in enumerate(raw.get(theirs, [])):
            require_columns(row, COLUMNS, f"{path or HUB_DATASET}, {theirs} row {number}", number)
            articles.setdefault(row["title"], {})[" ".join(row["context"].split())] = None
            answers = {text.strip() for text in row["answers"]["text"]}
            if len(answers) == 1 and _NUMBER.fullmatch(answer := answers.pop()):
                splits[split].append(_row(row, answer.replace(",", ""), number, theirs))
    notes = drop_held_out(splits)
    kept = f"{len(splits['train']):,} train, {len(splits['test']):,} test"
    notes.append(f"Kept the questions whose answer is a number: {kept}.")
    require_training_rows(name, path or HUB_DATASET, splits, notes)
    _write_articles(Path(folder), articles)
    paragraphs = sum(map(len, articles.values()))
    notes.append(f"Wrote {paragraphs:,} paragraphs of {len(articles):,} articles to {folder}.")
    return Task(**to_datasets(**splits), notes=tuple(notes), gold=_gold)


def _row(row: Row, answer: str, number: int, split: str) -> Row:
    question = row["question"].strip()
    return {
        "prompt": [{"role": "user", "content": f"{question}\n\n{INSTRUCTION}"}],
        "question": question,
        "final_answer": answer,
        "title": row["title"],
        "source": "squad",
        "id": f"squad-{row.get('id', f'{split}-{number}')}",
    }


def _gold(row: Mapping[str, Any]) -> str:
    return f"The article {row['title']} says so.\n#### {row['final_answer']}"


def _write_articles(folder: Path, articles: Mapping[str, Mapping[str, None]]) -> None:
    """Write one file for each article, which other processes may read or write at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    for title, paragraphs in articles.items():
        file = folder / (re.sub(r"[^\w.-]", "_", title) + ".txt")
        text = "\n\n".join(paragraphs) + "\n"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            part = file.with_suffix(f".{os.getpid()}.part")
            part.write_text(text, encoding="utf-8")
            part.replace(file)
