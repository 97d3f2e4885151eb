"""Write the data of a task to a folder, compared with evaluation sets: scripts/prepare_data.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from rlvr import console
from rlvr.config.recipe import Recipe
from rlvr.config.specs import SPLITS, TaskSpec
from rlvr.data.decontamination import extract_question, find_overlaps
from rlvr.data.io import READABLE, Row, read_rows, write_rows
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.sagemaker import aws
from rlvr.scoring.registry import load_task, load_tasks

FILES = (*(f"{split}.jsonl" for split in SPLITS), "overlaps.jsonl", "summary.json")


def prepare(
    recipe: Recipe, output: Path, against: Sequence[str] = (), drop_overlaps: bool = False, s3: str | None = None
) -> None:
    """Load the recipe's task, compare it with evaluation sets, write the folder, print a summary, and upload.

    Args:
        against: evaluation sets: data files, or tasks as names or as {name: …, options …}.
        drop_overlaps: leave out training rows that overlap with an evaluation set.
        s3: a folder in S3 for the splits.
    """
    task = load_tasks(recipe.tasks)
    overlaps: list[Row] = []
    for name in against:
        task, found = _compare(task, name, drop=drop_overlaps)
        overlaps += found
    filled = [split for split in SPLITS if len(task.split(split)) > 0]
    summary = {
        "recipe": recipe.path.name,
        "task": recipe.task_name,
        "options": dict(recipe.tasks[0].options),
        "rows": {split: len(task.split(split)) for split in SPLITS},
        "columns": list(task.train.column_names),
        "prompt_kind": "messages" if task.is_chat else "text",
        "stop_strings": list(task.stop_strings),
        "notes": list(task.notes),
        "against": list(against),
        "overlaps": len(overlaps),
    }
    section = ["task:", "  name: jsonl", f"  path: {output}"]
    if "test" not in filled:
        section.append("  test_fraction: 0        # the task had no test split")
    if task.stop_strings:
        section.append(f"  stop_strings: {json.dumps(list(task.stop_strings), ensure_ascii=False)}")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"--output {output} can't be created: {error.strerror}. Name another folder."
        raise InputError(message, kind="unusable-output", key="--output", path=output) from error
    for name in FILES:
        (output / name).unlink(missing_ok=True)  # only files of this script: an older split must not remain
    for split in filled:
        write_rows(output / f"{split}.jsonl", task.split(split))
    if against:
        write_rows(output / "overlaps.jsonl", overlaps)
    text = json.dumps(summary, indent=2, ensure_ascii=False, default=str)
    (output / "summary.json").write_text(f"{text}\n", encoding="utf-8")
    _print(summary, task, output, overlaps, section)
    if s3 is not None:
        region = recipe.sagemaker.region if recipe.sagemaker is not None else None
        _upload(output, s3.rstrip("/"), section, region)


def check_output(output: Path, force: bool) -> None:
    """Refuse a folder that has files which this command did not write."""
    if output.is_dir() and any(output.iterdir()) and not force:
        raise InputError(
            f"--output {output} has files, so nothing was written. Name another folder, or add --force to replace "
            f"{', '.join(FILES)} there.",
            kind="unusable-output",
            path=output,
        )


def prompt_text(prompt: str | list[dict[str, Any]]) -> str:
    """Return the prompt as text, without the tokens of a chat template."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"[{message['role']}] {message['content']}" for message in prompt)


def _compare(task: Task, against: str, *, drop: bool) -> tuple[Task, list[Row]]:
    """Compare the training rows with an evaluation set.

    Returns:
        The task, with a note, and without the overlapping rows if `drop`; and the overlaps, for overlaps.jsonl.
    """
    train = [extract_question(row, f"Training row {number}", number) for number, row in enumerate(task.train)]
    name, held_rows = _evaluation_set(against)
    held = [extract_question(row, f"{name}, row {number}", number) for number, row in enumerate(held_rows)]
    pairs = find_overlaps(train, held)
    ids = task.train["id"] if "id" in task.train.column_names else range(len(train))
    overlaps = [
        {
            "train_id": ids[train_row],
            "against": name,
            "held_id": held_rows[held_row].get("id", held_rows[held_row].get("task_id", held_row)),
            "share": round(share, 3),
        }
        for train_row, held_row, share in pairs
    ]
    rows = {train_row for train_row, _, _ in pairs}
    note = f"Compared {len(train):,} training rows with {len(held):,} of {name}: {len(rows):,} overlap"
    if not drop or not rows:
        return replace(task, notes=(*task.notes, f"{note}.")), overlaps
    kept = [number for number in range(len(train)) if number not in rows]
    if not kept:
        message = f"--drop_overlaps: every training row overlaps with {name}. Choose other data."
        raise InputError(message, kind="empty-data", key="train")
    return replace(task, train=task.train.select(kept), notes=(*task.notes, f"{note}, and were dropped.")), overlaps


def _evaluation_set(against: str) -> tuple[str, list[Row]]:
    """Load a data file, or the test rows of a task, written as its name or as {name: …, options …}."""
    if Path(against).suffix in READABLE:
        return against, read_rows(Path(against))
    try:
        parsed = yaml.safe_load(against)
    except yaml.YAMLError as error:
        message = f"--against {against} is neither a data file nor a task: {error}"
        raise InputError(message, kind="invalid-value", key="against") from None
    options = dict(parsed) if isinstance(parsed, dict) else {"name": against}
    name = options.pop("name", None)
    if not isinstance(name, str):
        message = f"--against {against} names no task. Write a file, a task, or {{name: mbpp, path: …}}."
        raise InputError(message, kind="invalid-value", key="against")
    try:
        rows = list(load_task(TaskSpec(name, options)).test)
    except InputError as error:
        advice = "" if "path" in options else f" Options go into --against '{{name: {name}, path: …}}'."
        raise InputError(f"--against {against}: {error}{advice}", kind=error.kind, key="against") from error
    if not rows:
        message = f"--against {against}: this task has no test rows. Choose another."
        raise InputError(message, kind="empty-data", key="against")
    return name, rows


def _print(summary: dict[str, Any], task: Task, output: Path, overlaps: list[Row], section: Sequence[str]) -> None:
    rows = {split: number for split, number in summary["rows"].items() if number}
    console.info(f"Task {summary['task']} of {summary['recipe']}")
    for note in summary["notes"]:
        console.info(f"  {note}")
    console.info(f"\n{console.table(['split', 'rows'], [[split, f'{number:,}'] for split, number in rows.items()])}")
    if overlaps:
        console.info("\nThe closest overlaps; overlaps.jsonl lists all:")
        for overlap in sorted(overlaps, key=lambda overlap: -float(overlap["share"]))[:5]:
            pair = f"{overlap['train_id']} with {overlap['held_id']} of {overlap['against']}"
            console.info(f"  {pair}, {overlap['share']:.0%} of its words")
    split = next(iter(rows))
    row = task.split(split)[0]
    console.info(f"\n── {split} row 0 {'─' * 60}\n{prompt_text(row['prompt'])}")
    if "final_answer" in row:
        console.info(f"→ final_answer: {row['final_answer']}")
    console.info(f"\nWritten to {output}.")
    if "train" in rows:
        console.info("\n".join(["A recipe with this section trains on these files:", "", *section]))


def _upload(folder: Path, uri: str, section: Sequence[str], region: str | None) -> None:
    """Upload each split of a prepared folder below an S3 URI, and print the section of a recipe that reads them."""
    client = aws.client("s3", region)
    lines = ["Uploaded. A SageMaker job reads it with this section of a recipe:", "", *section]
    lines += ["sagemaker:", "  channels:"]
    for split in SPLITS:
        file, place = folder / f"{split}.jsonl", f"{uri}/{split}"
        bucket, key = aws.split_uri(f"{place}/{file.name}")
        with aws.translate_errors(f"Uploading to {place}"):
            if file.is_file():
                client.upload_file(str(file), bucket, key)
                lines.append(f"    {split}: {place}")
            else:  # of earlier data
                client.delete_object(Bucket=bucket, Key=key)
    console.info("\n".join(lines))
