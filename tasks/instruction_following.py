"""Load prompts with verifiable instructions: allenai/RLVR-IFeval (ODC-BY), and google/IFEval (Apache 2.0) held out.

Rows have IFEval's columns, which the reward instruction_constraints reads. RLVR-IFeval names a function and its
arguments in the column `ground_truth`. The task turns them into an id and arguments of IFEval. The relations are
"at most", "around" and "exactly" where RLVR-IFeval counts so.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from rlvr import InputError, Task
from rlvr.data.decontamination import find_overlaps
from rlvr.data.hub import download_rows
from rlvr.data.input_checks import require_columns, row_error
from rlvr.data.io import Row, read_splits
from rlvr.data.splits import hold_out_test, require_training_rows, to_datasets
from rlvr.errors import error_context
from rlvr.verifiers.instructions import LANGUAGE, read_instructions

HUB_DATASET, HELD_OUT_DATASET = "allenai/RLVR-IFeval", "google/IFEval"
# RLVR-IFeval's functions: the id of IFEval, IFEval's names of the arguments, and arguments that are always the same.
FUNCTIONS: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "verify_keywords": ("keywords:existence", {"keyword_list": "keywords"}, {}),
    "verify_keyword_frequency": ("keywords:frequency", {"word": "keyword", "N": "frequency"}, {"relation": "exactly"}),
    "validate_forbidden_words": ("keywords:forbidden_words", {"forbidden_words": "forbidden_words"}, {}),
    "verify_letter_frequency": (
        "keywords:letter_frequency",
        {"letter": "letter", "N": "let_frequency"},
        {"let_relation": "exactly"},
    ),
    "validate_response_language": (LANGUAGE, {"language": "language"}, {}),
    "verify_paragraph_count": ("length_constraints:number_paragraphs", {"N": "num_paragraphs"}, {}),
    "validate_word_constraint": ("length_constraints:number_words", {"N": "num_words", "quantifier": "relation"}, {}),
    "verify_sentence_constraint": (
        "length_constraints:number_sentences",
        {"N": "num_sentences", "quantifier": "relation"},
        {},
    ),
    "validate_paragraphs": (
        "length_constraints:nth_paragraph_first_word",
        {"N": "num_paragraphs", "i": "nth_paragraph", "first_word": "first_word"},
        {},
    ),
    "verify_postscript": ("detectable_content:postscript", {"postscript_marker": "postscript_marker"}, {}),
    "validate_placeholders": ("detectable_content:number_placeholders", {"N": "num_placeholders"}, {}),
    "verify_bullet_points": ("detectable_format:number_bullet_lists", {"N": "num_bullets"}, {}),
    "validate_title": ("detectable_format:title", {}, {}),
    "validate_choice": ("detectable_format:constrained_response", {"options": "options"}, {}),
    "validate_highlighted_sections": ("detectable_format:number_highlighted_sections", {"N": "num_highlights"}, {}),
    "validate_sections": (
        "detectable_format:multiple_sections",
        {"N": "num_sections", "section_splitter": "section_spliter"},
        {},
    ),
    "validate_json_format": ("detectable_format:json_format", {}, {}),
    "validate_repeat_prompt": ("combination:repeat_prompt", {"original_prompt": "prompt_to_repeat"}, {}),
    "validate_two_responses": ("combination:two_responses", {}, {}),
    "validate_uppercase": ("change_case:english_capital", {}, {}),
    "validate_lowercase": ("change_case:english_lowercase", {}, {}),
    "validate_frequency_capital_words": (
        "change_case:capital_word_frequency",
        {"N": "capital_frequency", "quantifier": "capital_relation"},
        {},
    ),
    "validate_end": ("startend:end_checker", {"end_phrase": "end_phrase"}, {}),
    "validate_quotation": ("startend:quotation", {}, {}),
    "validate_no_commas": ("punctuation:no_comma", {}, {}),
}


def instruction_following(
    *,
    path: str | None = None,
    test_fraction: float = 0.05,
    seed: int = 42,
) -> Task:
    """Load prompts, as chat messages, and their instructions.

    Args:
        path: a file, a folder with a train file and an optional test file, or a dataset of the hub. The columns are
            IFEval's (prompt, instruction_id_list, kwargs) or RLVR-IFeval's (messages, ground_truth). None downloads
            RLVR-IFeval, and IFEval to hold out, or uses the cached copies.
        test_fraction: share of the rows to hold out if the data has no test split.
        seed: seed of the rows to hold out.

    Rows have `prompt`, `question` (its last message), `instruction_id_list`, `kwargs`, `source` and `id`. Training rows
    are left out if their prompt overlaps a held-out prompt (rlvr/data/decontamination.py).
    """
    name = "instruction_following"
    raw = read_splits(name, path, HUB_DATASET)
    if path is None:
        raw["test"] = download_rows(HELD_OUT_DATASET, None, "Without a network: set path, under task.")["train"]
    notes: list[str] = []
    splits: dict[str, list[Row]] = {"validation": []}
    for split in ("train", "test"):
        splits[split] = _convert_all(raw.get(split, []), split, path, notes)
    notes += hold_out_test(name, splits, test_fraction, seed)
    questions = {split: [row["question"] for row in splits[split]] for split in ("train", "test")}
    leaked = {train for train, _, _ in find_overlaps(questions["train"], questions["test"])}
    splits["train"] = [row for number, row in enumerate(splits["train"]) if number not in leaked]
    notes.append(f"Dropped {len(leaked):,} training rows whose prompt overlaps a test prompt.")
    require_training_rows(name, path or HUB_DATASET, splits, notes)
    return Task(**to_datasets(**splits), notes=tuple(notes), answer=None)


def _convert_all(rows: list[Row], split: str, path: str | None, notes: list[str]) -> list[Row]:
    """Convert the rows of a split. Note how many are left out, and why."""
    source = path or (HUB_DATASET if split == "train" else HELD_OUT_DATASET)
    converted, dropped = [], Counter[str]()
    for number, row in enumerate(rows):
        where = f"{source}, {split} row {number}"
        is_ifeval = "ground_truth" not in row
        columns = ("prompt", "instruction_id_list", "kwargs") if is_ifeval else ("messages",)
        require_columns(row, columns, where, number)
        ids, arguments = (row["instruction_id_list"], row["kwargs"]) if is_ifeval else _read(row["ground_truth"])
        if isinstance(ids, list) and LANGUAGE in ids:
            dropped["an instruction on the language, which needs a language detector"] += 1
            continue
        try:
            with error_context(where, row=number):
                instructions = read_instructions(ids, arguments)
        except InputError:
            if is_ifeval:  # an error of the file
                raise
            dropped["a ground_truth that the checks can't express"] += 1
            continue
        column = "prompt" if is_ifeval else "messages"
        prompt = row[column]
        prompt = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if not isinstance(prompt, list) or not prompt or not isinstance(prompt[-1], dict):
            raise row_error(where, column, number, "it is neither text nor a list of messages")
        converted.append(
            {
                "prompt": prompt,
                "question": str(prompt[-1].get("content")),
                "instruction_id_list": [instruction.id for instruction in instructions],
                "kwargs": json.dumps([instruction.arguments for instruction in instructions], ensure_ascii=False),
                "source": source,
                "id": f"{Path(source).stem}-{split}-{row.get('key', number)}",
            }
        )
    if rows:
        reasons = "".join(f"; dropped {count:,} with {why}" for why, count in dropped.items())
        notes.append(f"Took {len(converted):,} of {len(rows):,} {split} rows of {source}{reasons}.")
    return converted


def _read(ground_truth: Any) -> tuple[Any, Any]:
    """Return the instruction of RLVR-IFeval's column in the form of IFEval's columns."""
    try:
        given = json.loads(ground_truth)
        id, names, fixed = FUNCTIONS[given["func_name"]]
    except (ValueError, TypeError, KeyError):
        return [ground_truth], [{}]
    arguments = {theirs: given.get(ours) for ours, theirs in names.items()} | fixed
    if isinstance(options := arguments.get("options"), str):
        arguments["options"] = [option.strip() for option in options.split(",")]
    return [id], [arguments]
