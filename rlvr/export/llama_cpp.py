"""Ask a GGUF file through llama.cpp on the CPU: its server (package xllamacpp) in a process of its own.

The process ends with this one, and a crash of llama.cpp is an error here.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.errors import InputError
from rlvr.evaluation.engines import Completion, Decoding

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PARALLEL = 4  # answers at a time


class LlamaCppEngine:
    """An `Engine` that asks llama.cpp with token ids.

    Args:
        tokenizer: decodes answers, as for the run's own.
        context: most tokens of a prompt with its answer.
        threads: of llama.cpp.

    Raises:
        InputError: of kind "llama-cpp-failed".
    """

    def __init__(self, file: Path, tokenizer: PreTrainedTokenizerBase, *, context: int, threads: int) -> None:
        import httpx2

        self.tokenizer, self._file = tokenizer, file
        words = [sys.executable, "-m", "rlvr.export.llama_cpp", file, PARALLEL * context, PARALLEL, threads]
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
        with ThreadPoolExecutor(PARALLEL) as threads:
            return list(threads.map(lambda ids: self._complete(ids, decoding), prompts))

    def _complete(self, ids: list[int], decoding: Decoding) -> Completion:
        answer = self._ask(
            "/completion",
            prompt=list(ids),
            n_predict=decoding.max_new_tokens,
            temperature=0,
            stop=list(decoding.stop_strings),
            return_tokens=True,
            cache_prompt=False,
        )
        tokens = answer["tokens"]
        text = str(self.tokenizer.decode(tokens, skip_special_tokens=True))
        return Completion(text, len(tokens), answer["stop_type"] in ("eos", "word"), tokens)

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

    def _ask(self, path: str, **body: Any) -> dict[str, Any]:
        import httpx2

        try:
            response = self._client.post(path, json=body)
        except httpx2.TransportError as error:
            raise self._failure() from error
        if response.is_error:
            raise self._failure(response.text[:300])
        return dict(response.json())

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


def serve(file: str, context: str, parallel: str, threads: str) -> None:
    """Serve a file on a free port of this host until standard input ends; print the address."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = file
    parameters.n_ctx, parameters.n_parallel = int(context), int(parallel)
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = int(threads)
    parameters.warmup = False
    parameters.ui = False
    parameters.verbosity = 0  # errors
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(*sys.argv[1:])
