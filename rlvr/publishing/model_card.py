"""The model card (README.md) of trained weights, written from the files of their run.

It replaces the cards of TRL and PEFT. It holds no path of this machine, and what models and data sets wrote stays text.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from rlvr.artifacts.evaluation_summary import often_unscored, score_of, table, verdict
from rlvr.artifacts.export_record import ExportRecord
from rlvr.artifacts.secret_scan import find_token
from rlvr.config import project
from rlvr.formatting import (
    COMPLETION_LIMIT,
    PROMPT_LIMIT,
    count,
    is_number,
    mapping,
    p_value_text,
    points,
    shorten,
    without_folder,
)
from rlvr.health.run_metrics import short_name
from rlvr.publishing import markdown
from rlvr.publishing.licences import data_licence, model_licence
from rlvr.publishing.snippets import Snippet, snippets
from rlvr.publishing.upload import local_folders
from rlvr.report.rollouts import evaluated_rows, reference_of
from rlvr.report.run_facts import facts
from rlvr.report.run_reader import RunRecord, read_run
from rlvr.rescoring.conversations import as_text

EXAMPLES = 5
IMAGE = "curves.png"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_KINDS = {"adapter": "A LoRA adapter of", "model": "A fine-tuned version of", "gguf": "GGUF files of a fine-tuned"}


@dataclass(frozen=True)
class Example:
    """A held-out row and the trained model's answer to it."""

    row: int
    prompt: str
    completion: str
    expected: str


def renew_cards(run_dir: Path, weights: Path) -> None:
    """Write the cards of a run and of its weights again, from the files of the run as they are now."""
    kind = "adapter" if (weights / "adapter_config.json").is_file() else "model"
    card = model_card(read_run(run_dir), kind)
    for file in (weights / "README.md", run_dir / "README.md"):
        if file.is_file():
            file.write_text(card, encoding="utf-8")


def model_card(
    run: RunRecord,
    kind: str,
    repo: str = "",
    *,
    base: str | None = None,
    image: str | None = None,
    export: ExportRecord | None = None,
) -> str:
    """Write the card of a run's weights.

    Args:
        kind: what is described: "adapter", "model" or "gguf".
        repo: the id of the repository that the code loads; without one, the folder is loaded by its name.
        base: the id of the base model on the hub, if the recipe names a folder.
        image: the name of the file with the curves beside the card.
        export: the record of the export, if the weights were exported.
    """
    public = replace(run, recipe=without_folders(run.recipe))
    recipe, base = public.recipe, base or hub_id(run.recipe.get("model_name_or_path"))
    rows = evaluated_rows(run.folder, "trained")
    code: list[Snippet] = []
    shown = next((row for row in rows if _example(row) is not None), None)
    if shown is not None and (base or kind != "adapter"):
        limit = mapping(run.evaluation.get("settings")).get("max_new_tokens") or recipe.get(
            "max_completion_length", 256
        )
        code = snippets(
            repo or run.name,
            recipe,
            shown["prompt"],
            max_new_tokens=limit,
            base=base if kind == "adapter" else None,
            dtype=export.dtype if export is not None else None,
            gguf=export.measured[0].file if export is not None and kind == "gguf" else None,
        )
    own_part = written_recipe(run)
    results = table(run.evaluation)
    return _template().render(
        metadata=_metadata(public, kind, repo or run.name, base),
        name=repo.rpartition("/")[2] or run.name,
        kind=_KINDS[kind],
        base=f"[{markdown.escape(base)}](https://huggingface.co/{base})" if base else markdown.code(_base_name(recipe)),
        verdict=verdict(run.evaluation),
        results=results and markdown.table(("", *results.header), [_cells(row) for row in results.rows]),
        exported=_exported(export) if export is not None else "",
        image=image,
        snippets=code,
        facts=markdown.table(("", ""), [(markdown.escape(name), _lines(lines)) for name, lines in _facts(public)]),
        recipe=own_part,
        recipe_digest=hashlib.sha256(published_recipe(run).encode()).hexdigest(),
        attached=bool(repo),
        answers=list(_answers(rows)),
        limits=list(_limits(public)),
        licences=[model_licence(base or _base_name(run.recipe)), *map(data_licence, run.tasks.values())],
    )


def published_recipe(run: RunRecord) -> str:
    """The text of recipe.yaml without secrets, and with the last part of each folder's path alone."""
    text = run.recipe_text
    for folder in sorted(set(_folders(run.recipe)), key=len, reverse=True):
        text = text.replace(folder, without_folder(folder))
    return text


def written_recipe(run: RunRecord) -> str:
    """The first part of `published_recipe`: what a person wrote, without the defaults that follow."""
    return published_recipe(run).partition("\n\n#")[0]


def without_folders(value: Any) -> Any:
    """A recipe's values, with the last part of each folder's path alone."""
    if isinstance(value, Mapping):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_folders(item) for item in value]
    return without_folder(value)


def hub_id(model: Any) -> str | None:
    """The name of a model, if it is an id on the hub and not a folder."""
    if not isinstance(model, str) or not _HUB_ID.fullmatch(model) or model.startswith(("models/", ".", "~")):
        return None
    return None if any((root / model).is_dir() for root in project.roots()) else model


def _base_name(recipe: Mapping[str, Any]) -> str:
    return str(recipe.get("model_name_or_path", "unknown"))


def _folders(value: Any) -> Iterator[str]:
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for item in items:
        yield from _folders(item)
    if without_folder(value) != value:
        yield value


@functools.cache
def _template() -> Any:
    import jinja2

    environment = jinja2.Environment(  # Markdown: the filters escape, as HTML's escapes would be shown
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"escape": markdown.escape, "code": markdown.code, "block": markdown.block}
    return environment.get_template("model_card.md.jinja")


def _metadata(run: RunRecord, kind: str, repo: str, base: str | None) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    trained = score_of(run.evaluation, "trained")
    task = short_name(run.task_name or "unknown")
    # An accuracy that leaves out many rows is no result that a table of models should show without its reason.
    result = (
        trained
        and not often_unscored(trained)
        and EvalResult(
            task_type="text-generation",
            dataset_type=task,
            dataset_name=task,
            dataset_split=run.evaluation.get("split"),
            metric_type="accuracy",
            metric_value=trained["accuracy"],
        )
    )
    data = ModelCardData(
        model_name=repo.rpartition("/")[2],
        base_model=base,
        base_model_relation={"adapter": "adapter", "model": "finetune", "gguf": "quantized"}[kind] if base else None,
        library_name={"adapter": "peft", "model": "transformers", "gguf": "llama.cpp"}[kind],
        pipeline_tag="text-generation",
        tags=["grpo", "trl", "rlvr", *(["lora"] if kind == "adapter" else [])],
        eval_results=[result] if result else None,
    )
    return str(data.to_yaml())


def _facts(run: RunRecord) -> Iterator[tuple[str, list[str]]]:
    """The facts of the report, and the hashes of what the result rests on."""
    identity = mapping(run.status.get("identity"))
    hashes = mapping(run.status.get("reward_files"))
    for name, lines in facts(run):
        yield name, [markdown.escape(line) for line in lines]
        if name == "Reward":
            known = [f"{markdown.escape(reward)} {markdown.code(digest)}" for reward, digest in hashes.items()]
            yield "Reward files, sha256", known or ["not recorded by this run"]
    if isinstance(identity.get("rows"), str):
        yield "Training prompts in their order, sha256", [markdown.code(identity["rows"])]


def _cells(row: Sequence[str]) -> list[str]:
    return [markdown.escape(cell) for cell in row]


def _lines(lines: Sequence[str]) -> str:
    return "<br>".join(lines)


def _answers(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Example]]]:
    """The first right and the first wrong answers, by row."""
    for word, is_right in (("Right", True), ("Wrong", False)):
        chosen = [row for row in rows if row["correct"] is is_right]
        examples = list(islice(filter(None, map(_example, chosen)), EXAMPLES))
        if examples:
            shown = f"the first {len(examples)} of {len(chosen):,}" if len(examples) < len(chosen) else "all"
            yield f"{word} answers ({shown})", examples


def _example(row: Mapping[str, Any]) -> Example | None:
    """None if a text holds what looks like a token, or a folder of this machine: the upload would be refused."""
    prompt, completion = as_text(row["prompt"]), as_text(row["completion"])
    expected = reference_of(row)
    texts = (prompt, completion, expected)
    if any(map(find_token, texts)) or any(folder in text for folder in local_folders() for text in texts):
        return None
    number = row.get("row")
    return Example(
        number if isinstance(number, int) else -1,
        shorten(prompt, PROMPT_LIMIT),
        shorten(completion, COMPLETION_LIMIT),
        expected,
    )


def _exported(export: ExportRecord) -> str:
    """The export's own measurement as a table."""
    rows = []
    for part in export.measured:
        loaded = ", ".join(f"{key} {value}" if key != "program" else str(value) for key, value in part.loaded.items())
        change = f"{points(part.difference['points'])} points, {p_value_text(part.difference['p_value'])}"
        cells = (
            f"{part.file}, {loaded}" if part.file else loaded,
            f"{part.before['correct']:,} of {part.rows:,}",
            f"{part.after['correct']:,} of {part.rows:,}",
            f"{change}{'; worse: ' + ' '.join(part.faults) if part.faults else ''}",
            f"{part.same_answers:,} of {part.rows:,}",
        )
        rows.append(_cells(cells))
    header = ("loaded", "right in the run", "right as published", "difference", "the same answer")
    return markdown.table(header, rows)


def _limits(run: RunRecord) -> Iterator[str]:
    trained, recipe = score_of(run.evaluation, "trained"), run.recipe
    task = short_name(run.task_name or "unknown")
    if trained is None:
        yield "The trained model was not measured on held-out rows."
    else:
        yield (
            f"Measured on {count(trained['rows'], 'row')} of the {run.evaluation.get('split', 'held-out')} split of "
            f"{task}, with {run.evaluation.get('decoding', 'unknown')} decoding. Nothing else was measured: no other "
            "task, language or form of prompt, no sampling, and no safety."
        )
        yield (
            f"An answer counts as right if the reward {run.metric} is 1. That checks the result, not the "
            "reasoning before it."
        )
        if trained.get("unscored"):
            yield f"{count(trained['unscored'], 'answer')} could not be judged and count neither way."
    seed = recipe.get("seed")
    yield (
        f"One run{f' with seed {seed}' if is_number(seed) else ''}: how much the result differs between seeds is not "
        "part of the interval."
    )
    if bits := "4 bits" if recipe.get("load_in_4bit") else "8 bits" if recipe.get("load_in_8bit") else "":
        yield f"Trained and measured with a base in {bits}. With a base in another precision, answers may differ."
    yield "Whether the base model saw the held-out rows before is unknown."
