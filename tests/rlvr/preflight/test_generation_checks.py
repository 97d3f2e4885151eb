"""How rollouts are sampled and what ends a completion, compared with the model's own settings."""

from __future__ import annotations

from typing import Any

import pytest
from datasets import Dataset

from rlvr.data.task import Task
from rlvr.modeling.generation import LEFT_OPEN, SET_BY_TRL, ignore_generation_config
from rlvr.preflight.generation_checks import (
    dated_prompts,
    unended_turns,
    unread_template_options,
    unused_generation_settings,
)
from tests.support.model_families import small_tokenizer
from tests.support.run_components import MODEL, only


def test_none_of_the_models_own_settings_is_used_and_all_are_noted() -> None:
    """Compared with transformers' own merging: we set aside exactly what it would use."""
    from transformers import AutoModelForCausalLM, GenerationConfig

    values: dict[str, Any] = {**dict.fromkeys((*LEFT_OPEN, *SET_BY_TRL), 0.5), "num_beams": 4, "top_k": 20}
    values |= {"suppress_tokens": [5], "forced_bos_token_id": 6, "forced_eos_token_id": 6}
    del values["watermarking_config"]  # an object of its own kind
    loaded = AutoModelForCausalLM.from_pretrained(MODEL)
    loaded.generation_config = GenerationConfig(**values)
    as_trl = {**SET_BY_TRL, "min_p": None, "do_sample": True, "max_new_tokens": 16, "cache_implementation": None}

    def taken() -> set[str]:
        merged, _ = loaded._prepare_generation_config(GenerationConfig(**as_trl))
        return {name for name in values if getattr(merged, name) == values[name]}

    assert taken() == values.keys() - SET_BY_TRL.keys()
    with ignore_generation_config(loaded):
        assert not taken()
    assert taken() == values.keys() - SET_BY_TRL.keys(), "the model is left as it was"

    note = only(unused_generation_settings({}, loaded.generation_config))
    assert (note.kind, note.level) == ("unused-generation-setting", "note")
    assert all(f"{name} {values[name]}" in note.message for name in values)


@pytest.mark.parametrize(
    ("file", "settings", "named", "why"),
    [
        ({}, {}, [], "a model that asks for nothing"),
        ({"eos_token_id": [1, 2], "do_sample": True, "temperature": 1.0}, {}, [], "what TRL does anyway"),
        ({"temperature": 0.6}, {"temperature": 0.6}, [], "the recipe says the same"),
        ({"temperature": 0.6}, {}, ["temperature 0.6 (generation_config.json) is not used"], "another temperature"),
        ({"min_p": 0.05}, {}, ["sampled with min_p 0.0"], "TRL leaves it open, we don't"),
        ({"min_p": 0.05}, {"min_p": 0.1}, ["sampled with min_p 0.1"], "the recipe says another"),
        ({"min_p": 0.05}, {"generation_kwargs": {"min_p": 0.05}}, [], "the recipe says the same in another place"),
        ({"suppress_tokens": [5]}, {}, ["sampled with none of them"], "no neutral value"),
    ],
)
def test_the_models_own_generation_settings_are_noted_if_they_are_replaced(
    file: dict[str, Any], settings: dict[str, Any], named: list[str], why: str
) -> None:
    from transformers import GenerationConfig

    notes = list(unused_generation_settings(settings, GenerationConfig(**file)))
    assert len(notes) == len(named), why
    assert all(words in note.message for words, note in zip(named, notes, strict=True)), why


def test_a_turn_that_no_token_ends_is_warned_of() -> None:
    from transformers import AutoTokenizer

    chat = Dataset.from_dict({"prompt": [[{"role": "user", "content": "1+1?"}]]})
    task = Task(chat, chat.select([]), chat.select([]))
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    assert not list(unended_turns(task, tokenizer, {tokenizer.eos_token_id}))
    warning = only(unended_turns(task, tokenizer, {3}))
    assert (warning.kind, warning.level) == ("unended-completion", "warning")
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    assert "closes no turn" in only(unended_turns(task, tokenizer, {tokenizer.eos_token_id})).message
    tokenizer.chat_template = "{{ raise_exception('no such role') }}"
    assert not list(unended_turns(task, tokenizer, {3})), "another check names prompts that can't be rendered"
    text = Dataset.from_dict({"prompt": ["1+1?"]})
    assert not list(unended_turns(Task(text, text.select([]), text.select([])), tokenizer, {3}))


@pytest.mark.parametrize(
    ("model", "options", "warned"),
    [
        ("meta-llama/Llama-3.2-1B-Instruct", {}, True),
        ("meta-llama/Llama-3.2-1B-Instruct", {"date_string": "26 Jul 2024"}, False),
        ("Qwen/Qwen3-0.6B", {}, False),
    ],
)
def test_a_template_that_writes_todays_date_is_named(model: str, options: dict[str, Any], warned: bool) -> None:
    rows = Dataset.from_dict({"prompt": [[{"role": "user", "content": "Hello"}]]})
    problems = list(dated_prompts(Task(rows, rows, rows), small_tokenizer(model), options))
    assert [problem.kind for problem in problems] == ["dated-prompt"] * warned


@pytest.mark.parametrize(
    ("model", "options", "suggestion"),
    [
        ("Qwen/Qwen3-0.6B", {"enable_thinkin": False}, "enable_thinking"),
        ("Qwen/Qwen3-0.6B", {"enable_thinking": False}, ""),
        ("meta-llama/Llama-3.2-1B-Instruct", {"date_string": "26 Jul 2024"}, ""),
        ("google/gemma-3-1b-it", {"enable_thinking": False}, None),
    ],
)
def test_an_option_that_the_template_does_not_read_is_named(
    model: str, options: dict[str, Any], suggestion: str | None
) -> None:
    problems = list(unread_template_options(options, small_tokenizer(model).chat_template))
    expected = [] if suggestion == "" else [("unused-key", "chat_template_kwargs", suggestion)]
    assert [(problem.kind, problem.key, problem.suggestion) for problem in problems] == expected
