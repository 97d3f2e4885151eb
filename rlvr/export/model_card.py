"""The model card (README.md) of trained weights, written from the files of their run.

It replaces the cards of TRL and PEFT. It holds no path of this machine, and what models and data sets wrote stays text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from rlvr.artifacts.evaluation_summary import table, verdict
from rlvr.artifacts.export_record import ExportRecord
from rlvr.config import project
from rlvr.environments.transcript import as_text
from rlvr.export.markdown import block, code, escape
from rlvr.export.snippets import loading_code
from rlvr.export.upload import scan
from rlvr.formatting import (
    COMPLETION_LIMIT,
    PROMPT_LIMIT,
    count,
    is_number,
    mapping,
    p_value_text,
    shorten,
    without_folder,
)
from rlvr.health.run_metrics import short_name
from rlvr.report.result_table import markdown_table
from rlvr.report.rollouts import evaluated_rows, reference_of
from rlvr.report.run_facts import facts
from rlvr.report.run_reader import RunRecord, parse_recipe, read_run

EXAMPLES = 5
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_INTRODUCTION = (
    "{kind} {base}, trained with GRPO ([paper](https://huggingface.co/papers/2402.03300)) and verifiable rewards by "
    "[TRL](https://github.com/huggingface/trl).\nThis card was written from the files of the run."
)
_KINDS = {"adapter": "A LoRA adapter of", "model": "A fine-tuned version of", "gguf": "GGUF files of a fine-tuned"}


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
    export: ExportRecord | None = None,
) -> str:
    """Write the card of a run's weights.

    Args:
        kind: what is described: "adapter", "model" or "gguf".
        repo: the id of the repository that the code loads; without one, the folder is loaded by its name.
        base: the id of the base model on the hub, if the recipe names a folder.
        export: the record of the export, if the weights were exported.
    """
    text = published_recipe(run)
    public = replace(run, recipe=parse_recipe(text))
    base, shown = base or hub_id(run.recipe.get("model_name_or_path")), public.recipe.get("model_name_or_path")
    rows = evaluated_rows(run.folder, "trained")
    link = f"[{escape(base)}](https://huggingface.co/{base})" if base else code(str(shown or "unknown"))
    name = repo.rpartition("/")[2] or run.name
    sections = [
        f"---\n{_metadata(public, kind, name, base)}\n---",
        f"# {escape(name)}",
        _INTRODUCTION.format(kind=_KINDS[kind], base=link),
        *_result(run, export),
        _use(public, kind, repo or run.name, rows, export) if base or kind != "adapter" else "",
        f"## How it was trained\n\n{markdown_table(('', ''), list(_facts(public)))}",
        _recipe(text, attached=bool(repo)),
        *_answers(rows),
        "## Limits\n\n" + "\n".join(f"- {escape(limit)}" for limit in _limits(public)),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def published_recipe(run: RunRecord) -> str:
    """The text of recipe.yaml without secrets, and with the last part of each folder's path alone."""
    text = run.recipe_text
    for folder in sorted(set(_folders(run.recipe)), key=len, reverse=True):
        text = text.replace(folder, without_folder(folder))
    return text


def hub_id(model: Any) -> str | None:
    """The name of a model, if it is an id on the hub and not a folder."""
    if not isinstance(model, str) or not _HUB_ID.fullmatch(model) or model.startswith(("models/", ".", "~")):
        return None
    return None if any((root / model).is_dir() for root in project.roots()) else model


def _folders(value: Any) -> Iterator[str]:
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for item in items:
        yield from _folders(item)
    if without_folder(value) != value:
        yield value


def _metadata(run: RunRecord, kind: str, name: str, base: str | None) -> str:
    trained = run.evaluation.trained
    task = short_name(run.task_name or "unknown")
    results = None
    # An accuracy that leaves out many rows is no result that a table of models should show without its reason.
    if trained is not None and not trained.is_often_unscored:
        results = [
            EvalResult(
                task_type="text-generation",
                dataset_type=task,
                dataset_name=task,
                dataset_split=run.evaluation.split or None,
                metric_type="accuracy",
                metric_value=trained.accuracy,
            )
        ]
    data = ModelCardData(
        model_name=name,
        base_model=base,
        base_model_relation={"adapter": "adapter", "model": "finetune", "gguf": "quantized"}[kind] if base else None,
        library_name={"adapter": "peft", "model": "transformers", "gguf": "llama.cpp"}[kind],
        pipeline_tag="text-generation",
        tags=["grpo", "trl", "rlvr", *(["lora"] if kind == "adapter" else [])],
        eval_results=results,
    )
    return str(data.to_yaml())


def _result(run: RunRecord, export: ExportRecord | None) -> Iterator[str]:
    result, figures = verdict(run.evaluation), table(run.evaluation)
    yield f"## Result\n\n**{escape(result.sentence)}**"
    if figures is not None:
        yield markdown_table(("", *figures.header), [list(map(escape, row)) for row in figures.rows])
    yield from map(escape, result.details)
    if export is not None:
        deciding = export.measured[:1] if export.kind == "adapter" else export.measured
        worst = min(deciding, key=lambda part: float(part.difference["points"]))
        faults = dict.fromkeys(fault for part in deciding for fault in part.faults)
        before, after, p_value = worst.before["correct"], worst.after["correct"], worst.difference["p_value"]
        yield (
            f"The weights were exported from the run, loaded again, and asked the same {worst.rows:,} rows: {after:,} "
            f"answers were right, and {before:,} in the run ({p_value_text(p_value)}). `export.json` has the figures"
            f"{' of each file; these are the lowest' if len(deciding) > 1 else ''}."
            f"{' It is worse than the run: ' + escape('; '.join(faults)) + '.' if faults else ''}"
        )


def _use(run: RunRecord, kind: str, repo: str, rows: Sequence[Mapping[str, Any]], export: ExportRecord | None) -> str:
    """The code for the prompt of the first row that can be shown, empty without any; for GGUF a command."""
    if kind == "gguf":
        lines = [f"llama-server -hf {repo} -hff {part.file}" for part in (export.measured if export else ())]
        shell = block("\n".join(lines), "bash")
        return f"## Use\n\nWith [llama.cpp](https://github.com/ggml-org/llama.cpp):\n\n{shell}"
    shown = next((row for row in rows if _example(row)), None)
    if shown is None:
        return ""
    limit = run.evaluation.max_new_tokens
    python = loading_code(
        repo,
        run.recipe,
        shown["prompt"],
        max_new_tokens=limit or run.recipe.get("max_completion_length", 256),
        kind=kind,
        dtype=export.dtype if export is not None else None,
    )
    needs = "transformers and PEFT" if kind == "adapter" else "transformers"
    return (
        f"## Use\n\nThe code needs {needs}. The prompt is that of a held-out row. Prompts of other forms were not "
        f"measured.\n\n{block(python, 'python')}"
    )


def _facts(run: RunRecord) -> Iterator[tuple[str, str]]:
    """The facts of the report, and the hashes of what the result rests on."""
    digests = mapping(run.status.get("reward_files"))
    for name, lines in facts(run):
        yield escape(name), "<br>".join(map(escape, lines))
        if name == "Reward":
            known = [f"{escape(reward)} {code(digest)}" for reward, digest in digests.items()]
            yield "Reward files, sha256", "<br>".join(known) or "not recorded by this run"
    prompts = mapping(run.status.get("identity")).get("rows")
    if isinstance(prompts, str):
        yield "Training prompts in their order, sha256", code(prompts)


def _recipe(text: str, *, attached: bool) -> str:
    """The first part of a recipe's text: what a person wrote, without the defaults that follow."""
    if not text:
        return ""
    digest, written = hashlib.sha256(text.encode()).hexdigest(), text.partition("\n\n#")[0]
    return (
        f"`recipe.yaml` has every setting{', and is attached' if attached else ''} (sha256 `{digest}`). What differs "
        "from the defaults:\n\n<details><summary>recipe</summary>\n\n"
        f"{block(written, 'yaml')}\n\n</details>"
    )


def _answers(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The first right and the first wrong answers, by row."""
    for word, is_right in (("Right", True), ("Wrong", False)):
        chosen = [row for row in rows if row["correct"] is is_right]
        examples = list(islice(filter(None, map(_example, chosen)), EXAMPLES))
        if examples:
            shown = f"the first {len(examples)} of {len(chosen):,}" if len(examples) < len(chosen) else "all"
            yield f"## {word} answers ({shown})"
            yield from examples


def _example(row: Mapping[str, Any]) -> str:
    """A row's prompt and completion; empty if the upload would be refused because of them."""
    prompt, completion, expected = as_text(row["prompt"]), as_text(row["completion"]), reference_of(row)
    if any(scan({"README.md": f"{prompt}\n{completion}\n{expected}".encode("utf-8", "replace")})):
        return ""
    reference = f", with the reference answer {code(expected)}" if expected else ""
    return (
        f"<details><summary>row {row.get('row')}</summary>\n\nThe prompt{reference}:\n\n"
        f"{block(shorten(prompt, PROMPT_LIMIT))}\n\nThe completion:\n\n"
        f"{block(shorten(completion, COMPLETION_LIMIT))}\n\n</details>"
    )


def _limits(run: RunRecord) -> Iterator[str]:
    trained, recipe = run.evaluation.trained, run.recipe
    if trained is None:
        yield "The trained model was not measured on held-out rows."
    else:
        yield (
            f"Measured on {count(trained.rows, 'row')} of the {run.evaluation.split or 'held-out'} split of "
            f"{short_name(run.task_name or 'unknown')}, with {run.evaluation.decoding or 'unknown'} decoding. "
            "Nothing else was measured: no other task, language or form of prompt, no sampling, and no safety."
        )
        yield f"An answer is right if {run.metric} is 1. It checks the result, not the reasoning before it."
        if trained.unscored:
            yield f"{count(trained.unscored, 'answer')} could not be judged and count neither way."
    seed = f" with seed {recipe['seed']}" if is_number(recipe.get("seed")) else ""
    yield f"One run{seed}: how much the result differs between seeds is not part of the interval."
    if recipe.get("load_in_4bit"):
        yield "Trained and measured with a base in 4 bits. With a base in another precision, answers may differ."
    yield "Whether the base model saw the held-out rows before is unknown."
