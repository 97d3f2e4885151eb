"""Keep generated answers on disk, so that a killed evaluation continues without generating one twice.

Whole sets of a base's answers are also kept outside the run (shared_answers.py). Verdicts are not kept: the verifier
runs again each time.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlvr.append_log import AppendLog, read_append_log
from rlvr.artifacts.directory import installed
from rlvr.config.recipe import Recipe
from rlvr.environments.loading import load_environment
from rlvr.errors import InputError
from rlvr.evaluation.engines import Completion, Conversation, Decoding
from rlvr.evaluation.shared_answers import Line, SharedAnswers
from rlvr.modeling import adapters
from rlvr.modeling.loading import find_model

FORMAT = 1  # of the lines and of the keys; another format is another file
PACKAGES = ("torch", "transformers", "peft", "bitsandbytes")
_LOADING_KEYS = (
    *("dtype", "load_in_4bit", "bnb_4bit_quant_type", "use_bnb_nested_quant", "attn_implementation"),
    *("bnb_4bit_quant_storage", "model_init_kwargs"),
)

_ENVIRONMENT_KEYS = ("max_tool_calling_iterations", "tool_timeout_s", "tool_budget_s", "max_tool_output")

AnswerKey = tuple[str, int]  # a prompt's key, and the number of its sample


def digest_of_prompt(ids: Sequence[int]) -> str:
    """A checksum of the prompt's token ids, which shots, chat template and tokenizer decide."""
    return hashlib.blake2b(json.dumps(list(ids)).encode(), digest_size=12).hexdigest()


def cache_settings(recipe: Recipe, decoding: Decoding, engine: str, adapter: Path | None, revision: str | None) -> dict:
    """Everything beside the prompt that decides a model's answer.

    Batch size, number of processes and kind of GPU are left out, since they decide the rounding alone: an evaluation
    that ran out of memory continues with smaller batches.

    Args:
        adapter: its folder, or that of a whole model; None for the base. Its content counts, not its name.
        revision: the commit of a model from the hub; None for a folder, whose content counts.
    """
    name = str(recipe.settings["model_name_or_path"])
    folder = Path(find_model(name))
    hub_revision = revision or recipe.settings.get("model_revision")
    settings = {
        "format": FORMAT,
        "model": name,
        "weights": adapters.fingerprint(folder) if folder.is_dir() else hub_revision,
        "adapter": None if adapter is None else adapters.fingerprint(adapter),
        "loaded": {key: recipe.settings[key] for key in _LOADING_KEYS if recipe.settings.get(key) is not None},
        "max_new_tokens": decoding.max_new_tokens,
        "stop_strings": list(decoding.stop_strings),
        "sampling": None if decoding.sampling is None else {**decoding.sampling, "seed": decoding.seed},
        "engine": engine,
        "versions": installed([*PACKAGES, *(["vllm"] if engine == "vllm" else [])]),
    }
    if recipe.environments:
        settings["environments"] = [
            {**asdict(spec), "source": inspect.getsource(load_environment(spec).cls)} for spec in recipe.environments
        ]
        settings["limits"] = {key: recipe.settings.get(key) for key in _ENVIRONMENT_KEYS}
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    return plain


def _line(key: AnswerKey, answer: Completion) -> Line:
    """An answer as it is written."""
    line = {"key": key[0], "sample": key[1], "text": answer.text, "tokens": answer.tokens, "ended": answer.ended}
    return line if answer.conversation is None else {**line, "conversation": asdict(answer.conversation)}


def _answer(line: Line) -> tuple[AnswerKey, Completion]:
    """Read what `_line` made."""
    conversation = Conversation(**line["conversation"]) if line.get("conversation") else None
    answer = Completion(str(line["text"]), int(line["tokens"]), bool(line["ended"]), conversation=conversation)
    return (str(line["key"]), int(line["sample"])), answer


class AnswerCache:
    """The answers of one model under one decoding, in `folder`.

    The file's name ends in a checksum of the settings, so that other settings have another file. Each process writes
    its own file and reads those of all. Collective: all processes construct it and call its methods at the same time,
    except `add` and `close`.

    Args:
        is_shared: whether whole sets are also kept outside the run; the same on all processes.
        conditions: of a shared set, on this process (`shared_answers.conditions`); None if they can't be told.

    Attributes:
        answers: what earlier sessions and this one generated.

    Raises:
        InputError: a file is damaged, can't be written, or is being written to by another evaluation.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        settings: Mapping[str, Any],
        *,
        is_shared: bool = False,
        conditions: Mapping[str, Any] | None = None,
    ) -> None:
        from accelerate import PartialState

        state = PartialState()
        text = json.dumps(settings, sort_keys=True)
        checksum = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        part = f".{state.process_index}" if state.process_index else ""
        self.path = folder / f"{name}-{checksum}{part}.jsonl"
        self.answers: dict[AnswerKey, Completion] = {}
        self._settings, self._is_shared, self._conditions = settings, is_shared, conditions
        self._unshared: SharedAnswers | None = None  # the set that this session generates as a whole
        self._log: AppendLog | None = None
        for file in sorted(folder.glob(f"*-{checksum}*.jsonl")):
            self._read(file)
        state.wait_for_everyone()  # all must agree on what is missing before any writes

    def _read(self, file: Path) -> None:
        try:
            self.answers.update(map(_answer, read_append_log(file)))
        except (ValueError, KeyError, TypeError, OSError) as error:
            message = f"The answer cache {file} can't be read ({type(error).__name__}: {error}). Remove it: its answers"
            raise InputError(f"{message} are generated again.", kind="damaged-file", path=file) from error

    def recall(self, pairs: Sequence[AnswerKey], own: Sequence[AnswerKey], batch_size: int) -> None:
        """Take all answers from outside the run, if they are there and this run has none of them yet.

        Args:
            pairs: all answers, in the order in which they are generated.
            own: the share of this process.
        """
        from accelerate import PartialState, utils

        if not self._is_shared:
            return
        # An answer of an earlier session may be from a batch of another size.
        has_begun = any(pair in self.answers for pair in pairs)
        conditions = utils.gather_object([None if has_begun else self._conditions])
        if None in conditions or not pairs:
            return
        is_main = PartialState().is_main_process
        self._unshared = SharedAnswers([conditions, batch_size, pairs])
        [lines] = utils.broadcast_object_list([self._unshared.read() if is_main else None])
        if lines is not None:
            self._unshared = None
            found = dict(map(_answer, lines))
            self.add(own, [found[key] for key in own])

    def share(self, own: Sequence[AnswerKey]) -> None:
        """Keep the answers outside the run, if this session has generated all of them.

        Args:
            own: as for `recall`.
        """
        from accelerate import PartialState, utils

        if self._unshared is None:
            return
        lines = utils.gather_object([_line(key, self.answers[key]) for key in own])
        if PartialState().is_main_process:
            self._unshared.write(lines)
        self._unshared = None

    def add(self, keys: Sequence[AnswerKey], completions: Sequence[Completion]) -> None:
        """Append answers to the file."""
        lines = [_line(key, answer) for key, answer in zip(keys, completions, strict=True)]
        self.answers.update(zip(keys, completions, strict=True))
        try:
            if self._log is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._log = AppendLog(self.path, self._settings)
            self._log.append(lines)
        except OSError as error:
            message, kind = f"{self.path} can't be written: {error.strerror}. Name another --output.", "unwritable"
            if isinstance(error, BlockingIOError):
                message = f"Another evaluation writes to {self.path}. Wait for it, or name another --output."
                kind = "file-in-use"
            raise InputError(message, kind=kind, key="--output", path=self.path) from error

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
