"""Generate in batches, with stop strings, for rollouts and for evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

# What TRL leaves open unless the recipe sets it, so that `generate` would take it from the model's
# generation_config.json (transformers/generation/utils.py, _prepare_generation_config). TRL computes probabilities from
# the temperature alone. With any of these, the text would be sampled from a distribution that TRL does not know of
# (huggingface/transformers#42762).
LEFT_OPEN = (
    "min_p",
    "top_h",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "encoder_no_repeat_ngram_size",
    "guidance_scale",
    "min_length",
    "min_new_tokens",
    "num_beams",
    "bad_words_ids",
    "begin_suppress_tokens",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "sequence_bias",
    "suppress_tokens",
    "watermarking_config",
)


@contextmanager
def ignore_generation_config(model: PreTrainedModel) -> Iterator[None]:
    """Ignore the model's generation_config.json inside, except for the tokens that end a completion.

    transformers fills what a `GenerationConfig` leaves open from the model's own, and None counts as left open. So the
    configuration that is passed to `generate` can't express this.
    """
    own = model.generation_config
    before = {name: value for name in LEFT_OPEN if (value := getattr(own, name, None)) is not None}
    for name in before:
        setattr(own, name, None)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(own, name, value)


def prompt_tokens(
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str | list[dict[str, str]]],
    template_options: Mapping[str, Any] | None = None,
) -> list[list[int]]:
    """Encode prompts, never truncated: chat messages through the chat template, strings as they are.

    Args:
        template_options: the recipe's `chat_template_kwargs`.
    """
    if prompts and isinstance(prompts[0], str):
        return tokenizer(list(prompts))["input_ids"]
    encoded = tokenizer.apply_chat_template(
        list(prompts), add_generation_prompt=True, return_dict=True, **(template_options or {})
    )
    return encoded["input_ids"]


def template_opens_think(
    tokenizer: PreTrainedTokenizerBase, prompt: Any, template_options: Mapping[str, Any] | None = None
) -> bool:
    """Whether the chat template ends this prompt in <think>; False for a string, and where it can't be rendered.

    Also False if </think> is a special token, which TRL does not decode: every thought would seem to have no end.
    """
    if isinstance(prompt, str) or "</think>" in tokenizer.all_special_tokens:
        return False
    try:
        rendered = tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=False, **(template_options or {})
        )
    except Exception:  # a template is a program of the model's author; the check reports those that fail
        return False
    return str(rendered).rstrip().endswith("<think>")


def end_tokens(config: GenerationConfig, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return all tokens that end a completion: the model's and the tokenizer's, as TRL does."""
    declared, own = config.eos_token_id, tokenizer.eos_token_id
    tokens = [declared] if isinstance(declared, int) else list(declared or [])
    return tokens if own is None or own in tokens else [own, *tokens]


def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt_ids: Sequence[Sequence[int]],
    config: GenerationConfig,
    *,
    stop_strings: Sequence[str] = (),
    **options: Any,
) -> list[list[int]]:
    """Complete a batch of prompts.

    Args:
        prompt_ids: token ids, one list a prompt; padded on the left here.
        config: sampling and length; its `eos_token_id` ends a completion. What it leaves open stays at transformers'
            defaults, whatever the model's own file has.
        stop_strings: a completion also ends where one of these has appeared. The string is kept: these tokens were
            sampled by the model, and a policy gradient needs exactly what was sampled.
        options: further arguments of `model.generate`.

    Returns:
        The completion's token ids, without padding; its last token is an end-of-sequence token unless it was cut off
        by the length or ended by a stop string.
    """
    import torch

    width = max(len(ids) for ids in prompt_ids)
    pad = tokenizer.pad_token_id
    device = model.device
    rows = torch.tensor([[pad] * (width - len(ids)) + list(ids) for ids in prompt_ids], device=device)
    mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompt_ids], device=device)
    stopping = {"stop_strings": list(stop_strings), "tokenizer": tokenizer} if stop_strings else {}
    with torch.no_grad(), ignore_generation_config(model):
        output = model.generate(input_ids=rows, attention_mask=mask, generation_config=config, **stopping, **options)
    eos = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    return [_own_tokens(ids, set(eos), pad, tokenizer, stop_strings) for ids in output[:, width:].tolist()]


def ended(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], eos: Sequence[int], stop_strings: Sequence[str]
) -> bool:
    """Whether a completion ended by itself, rather than at its maximal length."""
    return bool(ids) and (ids[-1] in eos or _stopped(tokenizer, ids, stop_strings))


def _own_tokens(
    ids: list[int], eos: set[int], pad: int, tokenizer: PreTrainedTokenizerBase, stop_strings: Sequence[str]
) -> list[int]:
    """Cut after the first end-of-sequence token, or before the padding that follows a stop string."""
    end = next((position for position, token in enumerate(ids) if token in eos), len(ids))
    own = ids[:end]
    if stop_strings:
        while own and own[-1] == pad:
            own = own[:-1]
        if _stopped(tokenizer, own, stop_strings):
            # Many base models pad with their end-of-sequence token (Qwen2.5 does). After a stop string it is padding:
            # the model never sampled it, and must not be trained on it.
            return own
    return ids[: end + 1]


def _stopped(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], stop_strings: Sequence[str]) -> bool:
    # Generation ends with the token that completes a stop string, so the last tokens hold it whole.
    tail = tokenizer.decode(ids[-64:]) if stop_strings else ""
    return any(stop in tail for stop in stop_strings)
