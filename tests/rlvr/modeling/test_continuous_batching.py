"""Continuous batching with the tiny model in 4 bits: plain generation's completions, and none of TRL's surprises."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.recipe import Recipe, RewardSpec, TaskSpec
from rlvr.modeling import continuous_batching
from rlvr.modeling.continuous_batching import cut, settings_faults

TINY_MODEL = Path(__file__).resolve().parents[3] / "models" / "tiny-arithmetic"


@pytest.fixture(scope="module")
def tiny() -> tuple[Any, Any, list[list[int]]]:
    """The model with a LoRA adapter in float32, its tokenizer, and prompts of several lengths."""
    import torch
    from peft import LoraConfig, get_peft_model

    from rlvr.modeling import loading as models
    from rlvr.modeling.generation import prompt_tokens
    from rlvr.scoring.registry import load_task

    settings = {"model_name_or_path": str(TINY_MODEL), "dtype": "bfloat16", "load_in_4bit": True, "use_cpu": True}
    recipe = Recipe(Path("test.yaml"), TaskSpec("arithmetic"), (RewardSpec("math_correctness"),), None, settings)
    tokenizer = models.load_tokenizer(recipe, chat=True)
    model = get_peft_model(models.load_model(recipe, tokenizer), LoraConfig(target_modules="all-linear"))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    rows = load_task(TaskSpec("arithmetic")).train.select(range(12))
    torch.set_num_threads(1)
    return model, tokenizer, prompt_tokens(tokenizer, rows["prompt"])


def config(tokenizer: Any, **changes: Any) -> Any:
    from transformers import GenerationConfig

    settings = {"max_new_tokens": 40, "do_sample": False, "eos_token_id": [2], "pad_token_id": tokenizer.pad_token_id}
    return GenerationConfig(**{**settings, **changes})


def test_greedy_completions_are_those_of_plain_generation_in_the_order_of_the_prompts(tiny: Any) -> None:
    from rlvr.modeling import generation

    model, tokenizer, prompts = tiny
    plain = generation.generate(model, tokenizer, prompts, config(tokenizer))
    ours = continuous_batching.generate(model, tokenizer, prompts, config(tokenizer))
    assert len({len(ids) for ids in plain}) > 1, "they end at different times"
    same = sum(one == other for one, other in zip(plain, ours, strict=True))
    assert same >= 11, "all but a tie in bfloat16"


def test_the_adapter_stays_in_float32_and_the_model_in_its_mode_and_trainable(tiny: Any) -> None:
    import torch

    model, tokenizer, prompts = tiny
    model.train()
    continuous_batching.generate(model, tokenizer, prompts[:2], config(tokenizer, max_new_tokens=2))
    assert model.training
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert {parameter.dtype for parameter in trainable} == {torch.float32}
    ids = torch.tensor([prompts[0]])
    model(input_ids=ids, labels=ids).loss.backward()
    assert any(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in trainable)
    model.zero_grad()


def test_samples_follow_the_distribution_that_the_model_states(tiny: Any) -> None:
    import torch

    model, tokenizer, prompts = tiny
    settings = config(tokenizer, do_sample=True, temperature=2.5, top_p=0.8, top_k=0, max_new_tokens=2)
    asked = [prompts[0]] * 300
    torch.manual_seed(0)
    sampled = continuous_batching.generate(model, tokenizer, asked, settings)
    # The first token is all but certain with this model; the second is drawn given the first.
    first = Counter(ids[0] for ids in sampled).most_common(1)[0][0]
    seconds = Counter(ids[1] for ids in sampled if ids[0] == first and len(ids) > 1)
    with torch.no_grad():
        logits = model(torch.tensor([[*prompts[0], first]])).logits[0, -1].float() / 2.5
    shares, tokens = torch.softmax(logits, -1).sort(descending=True)
    nucleus = int((shares.cumsum(0) - shares < 0.8).sum())
    expected = dict(zip(tokens[:nucleus].tolist(), (shares[:nucleus] / shares[:nucleus].sum()).tolist(), strict=True))
    assert set(seconds) <= set(expected), "nothing outside of the nucleus"
    count = sum(seconds.values())
    distance = sum(abs(seconds[token] / count - share) for token, share in expected.items()) / 2
    # Total variation of an honest sample of 300 over as many tokens: its mean, and half as much again.
    noise = sum((2 * share * (1 - share) / (torch.pi * count)) ** 0.5 for share in expected.values()) / 2
    assert count > 200
    assert distance < 1.5 * noise


def test_the_same_seed_gives_the_same_samples_and_the_next_batch_others(tiny: Any) -> None:
    import torch

    model, tokenizer, prompts = tiny
    settings = config(tokenizer, do_sample=True, temperature=3.0, top_k=0, max_new_tokens=8)
    batches = []
    for seed in (1, None, 1, None):
        if seed is not None:
            torch.manual_seed(seed)
        batches.append(continuous_batching.generate(model, tokenizer, prompts[:4], settings))
    assert batches[0] == batches[2] and batches[1] == batches[3]
    assert batches[0] != batches[1]


def test_a_completion_ends_with_its_stop_string(tiny: Any) -> None:
    from rlvr.modeling import generation

    model, tokenizer, prompts = tiny
    stop = ["\n"]
    plain = generation.generate(model, tokenizer, prompts, config(tokenizer), stop_strings=stop)
    ours = continuous_batching.generate(model, tokenizer, prompts, config(tokenizer), stop_strings=stop)
    assert any("\n" in tokenizer.decode(ids) for ids in plain)
    assert sum(one == other for one, other in zip(plain, ours, strict=True)) >= 11


def test_prompts_that_do_not_fit_are_an_error_and_not_empty_completions(tiny: Any) -> None:
    model, tokenizer, prompts = tiny
    options = {"num_blocks": 1, "page_size": 4, "max_batch_tokens": 4, "max_memory_percent": 0.5}
    with pytest.raises(RuntimeError, match="Continuous batching completed 0 of 4 prompts"):
        continuous_batching.generate(model, tokenizer, prompts[:4], config(tokenizer), options=options)


class Letters:
    """A tokenizer of one letter a token."""

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


@pytest.mark.parametrize(
    ("text", "stops", "kept", "why"),
    [
        ("abc", [], "abc", "no stop strings"),
        ("abc", ["x"], "abc", "none of them comes up"),
        ("one\nQ:two\nQ:three", ["\nQ:"], "one\nQ:", "the first of two"),
        ("one Q: two\n", ["\n", "Q:"], "one Q:", "whichever comes first"),
        ("Q:", ["Q:"], "Q:", "at the very end"),
        ("", ["Q:"], "", "nothing at all"),
    ],
)
def test_a_completion_is_cut_after_its_first_stop_string(text: str, stops: list[str], kept: str, why: str) -> None:
    ids = cut(Letters(), [ord(letter) for letter in text], stops)
    assert Letters().decode(ids) == kept, why


@pytest.mark.parametrize(
    ("changes", "launcher", "said"),
    [
        ({}, "python", None),
        ({"repetition_penalty": 1.0, "ds3_gather_for_generation": True}, "zero3", None),
        ({"transformers_continuous_batching_config": {"max_memory_percent": 0.3}}, "ddp", None),
        ({"use_vllm": True}, "python", "use_vllm"),
        ({"repetition_penalty": 1.1}, "python", "drops repetition_penalty"),
        ({"transformers_continuous_batching_config": {"seed": 1}}, "python", "the same random numbers"),
        ({}, "fsdp2", "wait for ever"),
        ({"ds3_gather_for_generation": False}, "zero3_offload", "wait for ever"),
    ],
)
def test_what_would_go_wrong_is_refused_before_a_run(changes: dict[str, Any], launcher: str, said: str | None) -> None:
    faults = settings_faults({"use_transformers_continuous_batching": True, **changes}, launcher)
    assert len(faults) == (said is not None)
    assert said is None or said in faults[0]
    assert settings_faults(changes, launcher) == []
