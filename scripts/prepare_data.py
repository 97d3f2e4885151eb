"""Write the data of a recipe to a folder: to inspect, edit or upload it.

    python scripts/prepare_data.py --config recipes/demo-arithmetic.yaml --output data/demo
    python scripts/prepare_data.py --config recipes/x.yaml --output data/x --task.shots 4     # any recipe key
    python scripts/prepare_data.py --config recipes/x.yaml --output data/x --against humaneval --drop_overlaps
    python scripts/prepare_data.py --config recipes/x.yaml --output data/x --s3 s3://BUCKET/grpo-recipes/data/x

The folder gets a JSONL file for each split with rows (train, validation, test), summary.json, and README.md: the
changes of the data, and the recipe section that trains on the folder (task: jsonl). With --against, overlaps.jsonl
lists the training rows that an evaluation set contains. --s3 uploads each split to a folder of its own, and prints the
section by which a SageMaker job reads them as channels. Exits with 2 and writes nothing if the recipe or its data is
wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.config.recipe import Recipe, load_recipe, require_one_task
from rlvr.config.specs import SPLITS, TaskSpec
from rlvr.data.io import READABLE, read_rows, task_section, write_rows
from rlvr.errors import InputError

if TYPE_CHECKING:
    from rlvr.data.task import Task

FILES = (*(f"{split}.jsonl" for split in SPLITS), "overlaps.jsonl", "summary.json", "README.md")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        epilog="Any recipe key can be overridden: --task.shots 4",
    )
    parser.add_argument("--config", type=Path, required=True, metavar="RECIPE", help="the recipe's YAML file")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the folder to write")
    parser.add_argument("--force", action="store_true", help="write into DIR even if it has files")
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="FILE_OR_TASK",
        help="compare training rows with an evaluation set: a data file, a task (humaneval), or a task with options "
        "('{name: mbpp, path: mbpp.jsonl}'), of which the test split counts; repeatable",
    )
    parser.add_argument(
        "--drop_overlaps", action="store_true", help="leave out training rows that overlap with an evaluation set"
    )
    parser.add_argument("--s3", metavar="URI", help="upload the splits below this folder in S3, for SageMaker jobs")

    command_line = sys.argv[1:] if words is None else words
    arguments, overrides = parser.parse_known_args(command_line)
    console.silence_libraries()
    try:
        if arguments.drop_overlaps and not arguments.against:
            raise InputError(
                "--drop_overlaps needs an evaluation set. Add --against.", kind="missing-key", key="against"
            )
        prepare(
            arguments.config,
            overrides,
            arguments.output,
            force=arguments.force,
            against=arguments.against,
            drop_overlaps=arguments.drop_overlaps,
            s3=arguments.s3,
        )
    except InputError as error:
        console.error(str(error))
        return 2
    return 0


def prepare(
    config: Path,
    overrides: list[str],
    output: Path,
    *,
    force: bool,
    against: list[str],
    drop_overlaps: bool,
    s3: str | None = None,
) -> None:
    """Load the recipe's task, compare it with evaluation sets, write the folder, print a summary, and upload."""
    if s3 is not None and not re.fullmatch(r"s3://[^/]+/.+", s3):
        message = f"--s3 {s3} is not a folder in S3. Name one like s3://BUCKET/grpo-recipes/data/NAME."
        raise InputError(message, kind="invalid-value", key="--s3")
    recipe = load_recipe(config, overrides)
    require_one_task(recipe, "prepare_data.py")
    _check_output(output, force)
    console.error(f"{recipe.path}: loading the data of {recipe.task_name} …")
    from rlvr.scoring.registry import load_tasks

    task = load_tasks(recipe.tasks)
    overlaps: list[dict[str, Any]] = []
    for name in against:
        task, overlaps_with_set = compare(task, name, drop=drop_overlaps)
        overlaps += overlaps_with_set
    summary = {**summarise(recipe, task), "against": against, "overlaps": len(overlaps)}

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"--output {output} can't be created: {error.strerror}. Name another folder."
        raise InputError(message, kind="unusable-output", key="--output", path=output) from error
    for name in FILES:
        (output / name).unlink(missing_ok=True)  # only files of this script: an older split must not remain
    for split in SPLITS:
        if len(task.split(split)) > 0:
            write_rows(output / f"{split}.jsonl", task.split(split))
    if against:
        write_rows(output / "overlaps.jsonl", overlaps)
    text = json.dumps(summary, indent=2, ensure_ascii=False, default=str)
    (output / "summary.json").write_text(f"{text}\n", encoding="utf-8")
    (output / "README.md").write_text(readme(summary, output), encoding="utf-8")
    _print(summary, task, output, overlaps)
    if s3 is not None:
        section = task_section(output, None, summary["stop_strings"], has_test=summary["rows"]["test"] > 0)
        upload(output, s3.rstrip("/"), section, recipe.sagemaker.region if recipe.sagemaker is not None else None)


def upload(folder: Path, uri: str, section: list[str], region: str | None) -> None:
    """Upload each split of a prepared folder below an S3 URI, and print the section of a recipe that reads them."""
    from rlvr.sagemaker import aws

    client = aws.client("s3", region)
    lines = ["Uploaded. A SageMaker job reads it with this section of a recipe:", "", *section]
    lines += ["sagemaker:", "  channels:"]
    for split in SPLITS:
        file = folder / f"{split}.jsonl"
        place = f"{uri}/{split}"
        with aws.translate_errors(f"Uploading to {place}"):
            if file.is_file():
                client.upload_file(str(file), *aws.split_uri(f"{place}/{file.name}"))
                lines.append(f"    {split}: {place}")
            else:  # of earlier data
                bucket, key = aws.split_uri(f"{place}/{file.name}")
                client.delete_object(Bucket=bucket, Key=key)
    console.info("\n".join(lines))


def compare(task: Task, against: str, *, drop: bool) -> tuple[Task, list[dict[str, Any]]]:
    """Compare the training rows with an evaluation set.

    Returns:
        The task, with a note, and without the overlapping rows if `drop`; and the overlaps, for overlaps.jsonl.
    """
    from rlvr.data.decontamination import extract_question, find_overlaps

    train = [extract_question(row, f"Training row {number}", number) for number, row in enumerate(task.train)]
    name, held_rows = _evaluation_set(against)
    held = [extract_question(row, f"{name}, row {number}", number) for number, row in enumerate(held_rows)]
    pairs = find_overlaps(train, held)
    ids = task.train["id"] if "id" in task.train.column_names else range(len(train))
    overlaps = [
        {
            "train_id": ids[overlap.train],
            "against": name,
            "held_id": held_rows[overlap.held].get("id", held_rows[overlap.held].get("task_id", overlap.held)),
            "same": overlap.same,
            "share": round(overlap.share, 3),
            "words": overlap.words,
        }
        for overlap in pairs
    ]
    rows = {overlap.train for overlap in pairs}
    note = f"Compared {len(train):,} training rows with {len(held):,} of {name}: {len(rows):,} overlap"
    if not drop or not rows:
        return dataclasses.replace(task, notes=(*task.notes, f"{note}.")), overlaps
    kept = [number for number in range(len(train)) if number not in rows]
    if not kept:
        raise InputError(
            f"--drop_overlaps: every training row overlaps with {name}. Choose other data.",
            kind="empty-data",
            key="train",
        )
    notes = (*task.notes, f"{note}, and were dropped.")
    return dataclasses.replace(task, train=task.train.select(kept), notes=notes), overlaps


def _evaluation_set(against: str) -> tuple[str, list[dict[str, Any]]]:
    """Load a data file, or the test rows of a task, written as its name or as {name: …, options …}."""
    import yaml

    from rlvr.scoring.registry import load_task

    if Path(against).suffix in READABLE:
        return against, read_rows(Path(against))
    try:
        parsed = yaml.safe_load(against)
    except yaml.YAMLError as error:
        raise InputError(
            f"--against {against} is neither a data file nor a task: {error}", kind="invalid-value", key="against"
        ) from None
    options = dict(parsed) if isinstance(parsed, dict) else {"name": against}
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise InputError(
            f"--against {against} names no task. Write a file, a task, or {{name: mbpp, path: …}}.",
            kind="invalid-value",
            key="against",
        )
    try:
        rows = list(load_task(TaskSpec(name, options)).test)
    except InputError as error:
        advice = "" if "path" in options else f" Options go into --against '{{name: {name}, path: …}}'."
        raise InputError(f"--against {against}: {error}{advice}", kind=error.kind, key="against") from error
    if not rows:
        raise InputError(
            f"--against {against}: this task has no test rows. Choose another.", kind="empty-data", key="against"
        )
    return name, rows


def _check_output(output: Path, force: bool) -> None:

    if output.exists() and not output.is_dir():
        raise InputError(f"--output {output} is a file. Name a folder.", kind="unusable-output", path=output)
    if output.is_dir() and any(output.iterdir()) and not force:
        raise InputError(
            f"--output {output} has files, so nothing was written. Name another folder, or add --force to replace "
            f"{', '.join(FILES)} there.",
            kind="unusable-output",
            path=output,
        )


def summarise(recipe: Recipe, task: Task) -> dict[str, Any]:
    """Return the content of summary.json: rows, columns, prompt lengths in characters, notes, options."""
    filled = next((split for split in SPLITS if len(task.split(split)) > 0), "train")
    return {
        "recipe": recipe.path.name,
        "task": recipe.task_name,
        "options": dict(recipe.tasks[0].options),
        "rows": {split: len(task.split(split)) for split in SPLITS},
        "columns": list(task.train.column_names),
        "prompt_kind": "text" if isinstance(task.split(filled)[0]["prompt"], str) else "messages",
        "prompt_characters": {
            split: _spread([len(prompt_text(prompt)) for prompt in task.split(split)["prompt"]])
            for split in SPLITS
            if len(task.split(split)) > 0
        },
        "stop_strings": list(task.stop_strings),
        "notes": list(task.notes),
    }


def prompt_text(prompt: str | list[dict[str, Any]]) -> str:
    """Return the prompt as text, without the tokens of a chat template."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"[{message['role']}] {message['content']}" for message in prompt)


def _spread(lengths: list[int]) -> dict[str, int]:
    ordered = sorted(lengths)
    return {
        "shortest": ordered[0],
        "median": ordered[len(ordered) // 2],
        "95 %": ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)],
        "longest": ordered[-1],
    }


def readme(summary: dict[str, Any], output: Path) -> str:
    """Return README.md of the folder: its content, the changes of the data, how to train on it."""
    task = task_section(output, None, summary["stop_strings"], has_test=summary["rows"]["test"] > 0)
    rows = [f"| {split}.jsonl | {count:,} |" for split, count in summary["rows"].items() if count]
    options = json.dumps(summary["options"], ensure_ascii=False, default=str)
    kind = "plain text" if summary["prompt_kind"] == "text" else "a list of chat messages"
    usage = [
        "A recipe trains on these files, with the prompts as they are, with this section:",
        "",
        "```yaml",
        *task,
        "```",
        "",
    ]
    return "\n".join(
        [
            f"# What {summary['recipe']} trains on",
            "",
            f"Written by scripts/prepare_data.py from the task `{summary['task']}` with the options `{options}`.",
            "",
            "| file | rows |",
            "|---|---|",
            *rows,
            "",
            f"Columns: {', '.join(summary['columns'])}. `prompt` is {kind}; the other columns go to the rewards.",
            "",
            *(f"- {note}" for note in summary["notes"]),
            "",
            *(usage if summary["rows"]["train"] else ()),
        ]
    )


def _print(summary: dict[str, Any], task: Task, output: Path, overlaps: list[dict[str, Any]]) -> None:
    console.info(f"Task {summary['task']} of {summary['recipe']}")
    for note in summary["notes"]:
        console.info(f"  {note}")
    console.info()
    measures = ("shortest", "median", "95 %", "longest")
    table = [
        [split, f"{summary['rows'][split]:,}", *(f"{spread[measure]:,}" for measure in measures)]
        for split, spread in summary["prompt_characters"].items()
    ]
    console.info(console.table(["split", "rows", *measures], table))
    console.info("  Prompt lengths are in characters.")
    if overlaps:
        console.info()
        console.info("The closest overlaps; overlaps.jsonl lists all:")
        for overlap in sorted(overlaps, key=lambda overlap: -float(overlap["share"]))[:5]:
            pair = f"{overlap['train_id']} with {overlap['held_id']} of {overlap['against']}"
            console.info(f"  {pair}, {overlap['share']:.0%} of its words: {overlap['words']}")
    first_split = next(split for split in SPLITS if len(task.split(split)) > 0)
    rows = task.split(first_split)
    for index in sorted({0, len(rows) // 2, len(rows) - 1}):
        console.info()
        console.info(f"── {first_split} row {index} " + "─" * 60)
        console.info(prompt_text(rows[index]["prompt"]))
        if "final_answer" in rows.column_names:
            console.info(f"→ final_answer: {rows[index]['final_answer']}")
    console.info()
    console.info(f"Written to {output}. Read its README.md first.")


if __name__ == "__main__":
    sys.exit(main())
