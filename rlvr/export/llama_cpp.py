"""Measure a GGUF file with llama.cpp's server (package xllamacpp) on the CPU."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
from transformers import PreTrainedTokenizerBase

from rlvr.artifacts.export_record import Remeasurement
from rlvr.errors import InputError
from rlvr.evaluation.engines import Completion, Decoding
from rlvr.evaluation.measured import greedy_decoding
from rlvr.export.remeasure import LIMITS, QUANTIZED, HeldOut, remeasure
from rlvr.modeling import loading
from rlvr.modeling.threads import MIN_HIDDEN_SIZE, available_cores

PARALLEL = 4  # answers at a time


class LlamaCppEngine:
    """An `Engine` that asks llama.cpp with token ids. Its errors are of kind "llama-cpp-failed".

    Args:
        tokenizer: decodes answers, as for the run's own.
        context: most tokens of a prompt with its answer.
        threads: of llama.cpp.
    """

    def __init__(self, file: Path, tokenizer: PreTrainedTokenizerBase, *, context: int, threads: int) -> None:
        self.tokenizer, self._file = tokenizer, file
        words = [sys.executable, "-m", "rlvr.export.llama_cpp_server", file, PARALLEL * context, PARALLEL, threads]
        # A file: a full pipe without a reader would block the engine. SIM115: it stays open as long as the engine.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process
        )
        assert self._process.stdout is not None
        address = self._process.stdout.readline().strip()
        if not address:
            raise self._failure()
        self._client = httpx2.Client(base_url=address, timeout=None, trust_env=False)

    def complete(self, prompts: Sequence[list[int]], decoding: Decoding, seed: int) -> list[Completion]:
        assert decoding.sampling is None, "an export is measured greedily"
        answers = self._ask(
            "/completion",
            prompt=[list(ids) for ids in prompts],
            n_predict=decoding.max_new_tokens,
            temperature=0,
            stop=list(decoding.stop_strings),
            return_tokens=True,
            cache_prompt=False,
        )
        completions = []
        for answer in answers if len(prompts) > 1 else [answers]:
            text = str(self.tokenizer.decode(answer["tokens"], skip_special_tokens=True))
            is_ended = answer["stop_type"] in ("eos", "word")
            completions.append(Completion(text, len(answer["tokens"]), is_ended, answer["tokens"]))
        return completions

    def log_probabilities(self, prompt: list[int], answer: list[int]) -> list[float]:
        """The log-probability of each token of an answer, as far as greedy decoding gives the same tokens."""
        if not answer:
            return []
        body = {"prompt": prompt, "n_predict": len(answer), "temperature": 0, "n_probs": 1, "cache_prompt": False}
        values = []
        for token, step in zip(answer, self._ask("/completion", **body)["completion_probabilities"], strict=False):
            if step["id"] != token:
                break
            values.append(float(step["logprob"]))
        return values

    def encode_text(self, text: str, *, add_special: bool = True) -> list[int]:
        """Token ids of a text, by the tokenizer in the file."""
        return list(self._ask("/tokenize", content=text, add_special=add_special, parse_special=True)["tokens"])

    def encode_prompt(self, prompt: str | list[dict[str, str]], options: Mapping[str, Any] | None) -> list[int]:
        """Token ids of a prompt, by the chat template in the file."""
        if isinstance(prompt, str):
            return self.encode_text(prompt)
        answer = self._ask("/apply-template", messages=prompt, chat_template_kwargs=dict(options or {}))
        return self.encode_text(answer["prompt"])

    def _ask(self, path: str, **body: Any) -> Any:
        try:
            response = self._client.post(path, json=body)
        except httpx2.TransportError as error:
            raise self._failure() from error
        if response.is_error:
            raise self._failure(response.text[:300])
        return response.json()

    def _failure(self, why: str = "") -> InputError:
        if not why:
            self.close()
            self._errors.seek(0)
            why = self._errors.read()
        lines = [line.strip() for line in why.splitlines() if line.strip()] or ["it ended without a message"]
        return InputError(
            f"llama.cpp can't load or ask {self._file.name}: {lines[-1]}. Update the package xllamacpp, or use --to "
            "merged.",
            kind="llama-cpp-failed",
            path=self._file,
        )

    def close(self) -> None:
        """End the process."""
        with suppress(BrokenPipeError):  # it has ended
            self._process.communicate()


def remeasure_gguf(held: HeldOut, file: Path, kind: str) -> Remeasurement:
    """Measure a GGUF file with llama.cpp.

    Its chat template and tokenizer have to make the run's tokens of each prompt, and of each of the run's answers.
    """
    recipe = held.recipe
    config = loading.load_config(recipe).get_text_config()
    room = max(map(len, held.ids)) + greedy_decoding(held.task, recipe).max_new_tokens + 16
    context = config.max_position_embeddings if recipe.environments else min(room, config.max_position_embeddings)
    number = 1 if config.hidden_size < MIN_HIDDEN_SIZE else available_cores()
    engine = LlamaCppEngine(file, held.tokenizer, context=context, threads=number)
    options = held.recipe.settings.get("chat_template_kwargs")
    try:
        same_prompts = None
        if not recipe.environments:
            encode, answers = held.tokenizer.encode, [record["completion"] for record in held.records]
            same_prompts = sum(
                engine.encode_prompt(prompt, options) == list(ids)
                and engine.encode_text(answer, add_special=False) == encode(answer, add_special_tokens=False)
                for prompt, ids, answer in zip(held.data["prompt"], held.ids, answers, strict=True)
            )
        loaded = {"program": "llama.cpp", "dtype": kind}
        limits = LIMITS.get(kind, QUANTIZED)
        return remeasure(held, engine, engine.log_probabilities, file.name, loaded, limits, same_prompts)
    finally:
        engine.close()
