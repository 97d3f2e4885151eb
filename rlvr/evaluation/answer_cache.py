"""Answers that are kept as they come, so that an evaluation that was killed goes on and asks nothing twice.

Kept is what the model wrote, not whether it is right: scoring is repeated each time, by today's verifier.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr.append_log import AppendLog, AppendLogError, read_append_log
from rlvr.config.recipe import Recipe
from rlvr.errors import InputError
from rlvr.evaluation.engines import Completion, Decoding
from rlvr.modeling import adapters

FORMAT = 1  # of the lines below and of the keys; another one is another file
PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "vllm")
_OF_WEIGHTS = (
    *("dtype", "load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type", "use_bnb_nested_quant", "attn_implementation"),
)

Place = tuple[str, int]  # a prompt's key, and the number of its sample


def prompt_key(ids: Sequence[int]) -> str:
    """Stands for a prompt as the model sees it: shots, chat template and tokenizer are all in its token numbers."""
    return hashlib.blake2b(json.dumps(list(ids)).encode(), digest_size=12).hexdigest()


def identity(recipe: Recipe, decoding: Decoding, engine: str, adapter: Path | None, revision: str | None) -> dict:
    """Everything beside the prompt that decides what a model answers.

    Not in it are the batch size, the number of processes and the kind of GPU, which decide the rounding: an evaluation
    that ran out of memory goes on with smaller batches.

    Args:
        adapter: its folder, or that of a whole model; None for the base. Its content counts, not its name.
        revision: the commit of a model from the hub; None for a folder, whose content counts.
    """
    from importlib.metadata import PackageNotFoundError, version

    from rlvr.modeling.loading import find_model

    versions = {}
    for package in PACKAGES:
        if package == "vllm" and engine != "vllm":
            continue
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    name = str(recipe.settings["model_name_or_path"])
    folder = Path(find_model(name))
    found = {
        "format": FORMAT,
        "model": name,
        "weights": adapters.fingerprint(folder)
        if folder.is_dir()
        else revision or recipe.settings.get("model_revision"),
        "adapter": None if adapter is None else adapters.fingerprint(adapter),
        "loaded": {key: recipe.settings[key] for key in _OF_WEIGHTS if recipe.settings.get(key) is not None},
        "max_new_tokens": decoding.max_new_tokens,
        "stop_strings": list(decoding.stop_strings),
        "sampling": None if decoding.sampling is None else {**decoding.sampling, "seed": decoding.seed},
        "engine": engine,
        "versions": versions,
    }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


class AnswerCache:
    """The answers of one model under one decoding, in `folder`.

    The file's name ends in a checksum of the settings, so that other settings have another file. Each process of a
    launch writes a file of its own and reads those of all. Collective: made by all processes at the same time.

    Raises:
        InputError: a file is damaged, can't be written, or is being written to by another evaluation.
    """

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        from accelerate import PartialState

        state = PartialState()
        text = json.dumps(settings, sort_keys=True)
        checksum = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        part = f".{state.process_index}" if state.process_index else ""
        self.path = folder / f"{name}-{checksum}{part}.jsonl"
        self.known: dict[Place, Completion] = {}
        self._settings = settings
        self._log: AppendLog | None = None
        for file in sorted(folder.glob(f"*-{checksum}*.jsonl")):
            self._read(file)
        state.wait_for_everyone()  # nobody writes before all have read: they must agree on what is missing

    def _read(self, file: Path) -> None:
        try:
            _, lines = read_append_log(file)
            for line in lines:
                done = Completion(str(line["text"]), int(line["tokens"]), bool(line["ended"]))
                self.known[str(line["key"]), int(line["sample"])] = done
        except (AppendLogError, KeyError, TypeError, OSError) as error:
            raise InputError(
                f"{file} is no file of kept answers ({type(error).__name__}: {error}). Remove it: its rows are asked "
                "again."
            ) from error

    def add(self, places: Sequence[Place], completions: Sequence[Completion]) -> None:
        """Writes answers down for good."""
        lines = []
        for (key, sample), done in zip(places, completions, strict=True):
            self.known[key, sample] = done
            lines.append({"key": key, "sample": sample, "text": done.text, "tokens": done.tokens, "ended": done.ended})
        try:
            if self._log is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._log = AppendLog(self.path, self._settings)
            self._log.append(lines)
        except BlockingIOError as error:
            raise InputError(
                f"{self.path} is being written to by another evaluation. Wait for it, or name another --output."
            ) from error
        except OSError as error:
            raise InputError(f"{self.path} can't be written: {error.strerror}. Name another --output.") from error

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
