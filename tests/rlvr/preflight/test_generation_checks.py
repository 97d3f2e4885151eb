"""How rollouts are sampled and what ends a completion, compared with the model's own settings."""

from __future__ import annotations

from typing import Any

from datasets import Dataset

from rlvr.data.task import Task
from rlvr.modeling.generation import LEFT_OPEN, ignore_generation_config
from rlvr.preflight.generation_checks import (
    unended_turns,
)
from tests.support.run_components import MODEL, only

# What TRL 1.16 sets in every generation, with its defaults, whatever the model's own file has.
SET_BY_TRL: dict[str, float] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0}


def test_none_of_the_models_own_settings_is_used() -> None:
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
