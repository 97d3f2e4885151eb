"""Completions are exactly the tokens that the model sampled, wherever they end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from rlvr.evaluation.engines import Decoding, TransformersEngine
from rlvr.modeling.generation import ended, generate, prompt_tokens, template_opens_think

TINY = Path(__file__).resolve().parents[3] / "models" / "tiny-arithmetic"
QUESTIONS = [
    f"Mia has {number} apples. She finds 18 more. How many apples does she have now?" for number in range(20, 28)
]


@pytest.fixture(scope="module")
def model() -> Any:
    return AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()


def complete(model: Any, *, pad: str, stop_strings: tuple[str, ...] = (), tokens: int = 40) -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(TINY, padding_side="left")
    tokenizer.pad_token = pad
    chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
    config = GenerationConfig(
        max_new_tokens=tokens,
        do_sample=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return generate(model, tokenizer, prompt_tokens(tokenizer, chats), config, stop_strings=stop_strings)


def decode(ids: list[int]) -> str:
    return AutoTokenizer.from_pretrained(TINY).decode(ids)


def test_a_batch_is_completed_as_its_prompts_are_alone(model: Any) -> None:
    """Prompts of unequal length are padded on the left, which must not show."""
    tokenizer = AutoTokenizer.from_pretrained(TINY, padding_side="left")
    prompts = prompt_tokens(tokenizer, [[{"role": "user", "content": text}] for text in (QUESTIONS[0], "5+5?")])
    config = GenerationConfig(max_new_tokens=20, do_sample=False, eos_token_id=2, pad_token_id=0)
    together = generate(model, tokenizer, prompts, config)
    assert together == [generate(model, tokenizer, [prompt], config)[0] for prompt in prompts]


@pytest.mark.parametrize(
    ("pad", "why"),
    [
        ("<|endoftext|>", "a pad token of its own"),
        ("<|im_end|>", "padding with the end-of-sequence token, as Qwen2.5's base models do"),
    ],
)
def test_after_a_stop_string_nothing_is_added_that_was_not_sampled(model: Any, pad: str, why: str) -> None:
    stopped = complete(model, pad=pad, stop_strings=("tens",))
    whole = complete(model, pad=pad)
    for own, full in zip(stopped, whole, strict=True):
        assert decode(own).endswith("tens"), why
        assert own == full[: len(own)], "the same tokens as without a stop string, up to it"


def test_an_end_of_sequence_token_that_was_sampled_is_kept(model: Any) -> None:
    for ids in complete(model, pad="<|im_end|>", stop_strings=("this never comes",)):
        assert decode(ids).endswith("<|im_end|>") and decode(ids).count("<|im_end|>") == 1


def test_what_was_cut_off_is_told_from_what_ended(model: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    eos = [tokenizer.eos_token_id]
    for limit, stop_strings, all_ended in (
        (5, (), False),
        (40, (), True),
        (40, ("tens",), True),
        (5, ("tens",), False),
    ):
        completions = complete(model, pad="<|endoftext|>", stop_strings=stop_strings, tokens=limit)
        assert all(ended(tokenizer, ids, eos, stop_strings) for ids in completions) is all_ended


@pytest.mark.parametrize(
    ("ending", "options", "opens", "why"),
    [
        ("<think>\n", {}, True, "R1"),
        ("{% if enable_thinking %}<think>{% endif %}", {"enable_thinking": True}, True, "an option of the recipe"),
        ("{% if enable_thinking %}<think>{% endif %}", {"enable_thinking": False}, False, "that is off"),
        ("<think>\n\n</think>\n\n", {}, False, "Qwen3 without thoughts"),
        ("", {}, False, "a template without thoughts"),
        ("{{ raise_exception('no user') }}", {}, False, "a template that fails"),
        (None, {}, False, "a base model has no template"),
    ],
)
def test_a_template_that_opens_thoughts_is_recognised(
    ending: Any, options: dict[str, Any], opens: bool, why: str
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.chat_template = None if ending is None else "{% if add_generation_prompt %}" + ending + "{% endif %}"
    chat = [{"role": "user", "content": "Think.\n<think>"}]
    assert template_opens_think(tokenizer, chat, options) is opens, why
    assert template_opens_think(tokenizer, "<think>", options) is False, "text is not rendered"
    tokenizer.add_special_tokens({"additional_special_tokens": ["</think>"]})
    assert template_opens_think(tokenizer, chat, options) is False, "TRL would not decode the end of the thoughts"


@pytest.mark.parametrize("wrapped", [False, True])
def test_greedy_is_greedy_whatever_the_models_own_file_says(wrapped: bool) -> None:
    """Qwen2.5's generation_config.json has a repetition_penalty, which transformers would apply."""
    tokenizer = AutoTokenizer.from_pretrained(TINY, padding_side="left")
    prompts = prompt_tokens(tokenizer, [[{"role": "user", "content": question}] for question in QUESTIONS])
    own = {
        "repetition_penalty": 3.0,
        "no_repeat_ngram_size": 1,
        "suppress_tokens": [tokenizer.convert_tokens_to_ids("1")],
    }
    texts = []
    for settings in ({}, own):
        model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()
        eos = model.generation_config.eos_token_id
        model.generation_config = GenerationConfig(eos_token_id=eos, **settings)
        subject = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"])) if wrapped else model
        found = TransformersEngine(subject, tokenizer).complete(prompts, Decoding(40), seed=0)
        texts.append([completion.text for completion in found])
        assert model.generation_config.suppress_tokens == settings.get("suppress_tokens"), "it is put back"
    assert texts[0] == texts[1] and all("1" in text for text in texts[0])
