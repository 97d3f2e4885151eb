"""Generate with transformers or vLLM behind one interface: token ids in, completions out."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rlvr.config.recipe import Recipe
from rlvr.errors import InputError
from rlvr.modeling.generation import end_tokens, ended, generate
from rlvr.modeling.loading import find_model
from rlvr.modeling.vllm_engines import end_engine, ends_with_this_process, room_for_rank

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DEFAULT_SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}


@dataclass(frozen=True)
class Decoding:
    """How completions are generated, and when they end.

    Attributes:
        max_new_tokens: most tokens of a completion.
        stop_strings: a completion also ends where one of these has appeared.
        sampling: temperature, top_p, top_k, min_p, repetition_penalty (`sampling_settings`) and the recipe's
            `generation_kwargs`; None is greedy.
        seed: of the samples.
    """

    max_new_tokens: int
    stop_strings: tuple[str, ...] = ()
    sampling: dict[str, Any] | None = None
    seed: int = 0

    def words(self) -> str:
        """ "greedy", or "sampled at temperature 0.7, top_p 0.9"."""
        if self.sampling is None:
            return "greedy"
        default = {**DEFAULT_SAMPLING, "temperature": self.sampling["temperature"]}
        other = [f"{key} {value}" for key, value in self.sampling.items() if (key, value) not in default.items()]
        return ", ".join([f"sampled at temperature {self.sampling['temperature']:g}", *other])


@dataclass(frozen=True)
class Conversation:
    """A completion of several turns.

    Attributes:
        prompt: with what the environment's `reset` returned.
        messages: after the prompt, as TRL has them (docs/environments.md).
        stopped: "answer", or the limit that cut it: "iterations" or "length".
        tool_seconds: of each message of a tool; None for a call that reached no tool.
    """

    prompt: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    stopped: str
    tool_seconds: list[float | None]


@dataclass(frozen=True)
class Completion:
    """A completion.

    Attributes:
        text: without special tokens; of a conversation the last message.
        tokens: that the model wrote.
        ended: whether it ended by itself.
        ids: the tokens; an answer from the cache has none.
        conversation: None for an answer in one turn.
    """

    text: str
    tokens: int
    ended: bool
    ids: Sequence[int] = ()
    conversation: Conversation | None = None


class Engine(Protocol):
    """A loaded model that completes prompts."""

    tokenizer: PreTrainedTokenizerBase

    def complete(self, prompts: Sequence[list[int]], decoding: Decoding, seed: int) -> list[Completion]:
        """Complete each prompt once; `seed` is of this batch, and ignored where decoding is greedy."""
        ...

    def close(self) -> None:
        """Give up the model."""
        ...


def sampling_settings(recipe: Recipe) -> dict[str, Any]:
    """The recipe's sampling keys, with TRL's defaults for those that it leaves out."""
    return {name: recipe.settings.get(name, default) for name, default in DEFAULT_SAMPLING.items()}


class TransformersEngine:
    """Generate with transformers and a loaded model: same quantisation and adapter as in training."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.model, self.tokenizer = model, tokenizer

    def complete(self, prompts: Sequence[list[int]], decoding: Decoding, seed: int) -> list[Completion]:
        from transformers import GenerationConfig, set_seed

        eos = end_tokens(self.model.generation_config, self.tokenizer)
        sampling: dict[str, Any] = {"do_sample": False, "repetition_penalty": 1.0}  # Qwen2.5's own file says 1.1
        if decoding.sampling is not None:
            sampling = {"do_sample": True, **decoding.sampling}
            set_seed(seed)
        config = GenerationConfig(
            max_new_tokens=decoding.max_new_tokens,
            eos_token_id=eos,
            pad_token_id=self.tokenizer.pad_token_id,
            **sampling,
        )
        completions = generate(self.model, self.tokenizer, prompts, config, stop_strings=decoding.stop_strings)
        return [
            Completion(
                str(self.tokenizer.decode(tokens, skip_special_tokens=True)),
                len(tokens),
                ended(self.tokenizer, tokens, eos, decoding.stop_strings),
                tokens,
            )
            for tokens in completions
        ]

    def close(self) -> None:
        del self.model


class VllmEngine:
    """Generate with vLLM on a GPU; vLLM applies the adapter. Call `check_engine` first."""

    def __init__(self, recipe: Recipe, tokenizer: PreTrainedTokenizerBase, adapter: Path | None) -> None:
        from vllm import LLM  # type: ignore[import-not-found,unused-ignore]

        self.tokenizer = tokenizer
        self._adapter = None
        options: dict[str, Any] = {}
        model = find_model(str(recipe.settings["model_name_or_path"]))
        if adapter is not None and not (adapter / "adapter_config.json").is_file():
            model, adapter = str(adapter), None
        if adapter is not None:
            from vllm.lora.request import LoRARequest  # type: ignore[import-not-found,unused-ignore]

            rank = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8")).get("r", 16)
            options = {"enable_lora": True, "max_lora_rank": room_for_rank(int(rank))}
            self._adapter = LoRARequest("adapter", 1, str(adapter))
        self._model = LLM(
            model=model,
            tokenizer=find_model(str(recipe.settings["model_name_or_path"])),
            revision=recipe.value("model_revision"),
            dtype=recipe.value("dtype"),
            trust_remote_code=bool(recipe.value("trust_remote_code")),
            seed=int(recipe.value("seed")),
            **ends_with_this_process(),
            **options,
        )

    def complete(self, prompts: Sequence[list[int]], decoding: Decoding, seed: int) -> list[Completion]:
        from vllm import SamplingParams, TokensPrompt

        sampling = {
            key: value for key, value in (decoding.sampling or {"temperature": 0.0}).items() if value is not None
        }
        parameters = [
            SamplingParams(
                max_tokens=decoding.max_new_tokens,
                stop=list(decoding.stop_strings) or None,
                include_stop_str_in_output=True,  # as transformers keeps it
                seed=seed + number,
                **sampling,
            )
            for number in range(len(prompts))
        ]
        outputs = self._model.generate(
            [TokensPrompt(prompt_token_ids=list(ids)) for ids in prompts],
            parameters,
            lora_request=self._adapter,
            use_tqdm=False,
        )
        first = [output.outputs[0] for output in outputs]
        return [
            Completion(item.text, len(item.token_ids), item.finish_reason == "stop", item.token_ids) for item in first
        ]

    def close(self) -> None:
        """End vLLM's processes: the next engine needs the memory."""
        end_engine(self._model)
        del self._model


def check_engine(name: str, recipe: Recipe, processes: int = 1) -> None:
    """Check, before anything is loaded, that an engine can measure the recipe's model.

    Raises:
        InputError: it is not installed, or can't.
    """
    if name != "vllm":
        return
    if processes > 1:
        raise InputError(
            "--engine vllm: start it with python, not accelerate launch.", kind="conflicting-keys", key="--engine"
        )
    if importlib.util.find_spec("vllm") is None:
        raise InputError(
            "--engine vllm: vLLM is not installed. It needs a GPU and its own environment (pip install -e '.[vllm]', "
            "docs/training.md). Without --engine, transformers generates, which is slower.",
            kind="package-not-installed",
            key="--engine",
        )
    if recipe.settings.get("load_in_4bit"):
        raise InputError(
            "--engine vllm with load_in_4bit: vLLM would load the weights in full, and measure another model than "
            "the trained one. Remove --engine, or add --load_in_4bit false to measure that one.",
            kind="conflicting-keys",
            key="--engine",
        )
