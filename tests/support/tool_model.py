"""A tiny model of random weights whose chat template renders tools: that of Qwen3, and one token for each byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Script = Callable[[str], str]  # from the conversation so far to the model's next turn


def write_tool_model(folder: Path) -> Path:
    """Write the model and its tokenizer to a folder."""
    import torch
    import trl.chat_template_utils
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    words = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", extra_special_tokens=special[1:2]
    )
    fast.chat_template = trl.chat_template_utils.qwen3_chat_template
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=8192,
        eos_token_id=2,
        pad_token_id=0,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def call(name: str, **arguments: Any) -> str:
    """The text of a tool call."""
    import json

    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def follow(trainer: Any, script: Script) -> None:
    """Let the script write the turns of a trainer's model: ours, or TRL's own."""
    tokenizer = trainer.processing_class

    def generate_turn(prompt_ids: Sequence[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        turns = [script(tokenizer.decode(ids)) + "<|im_end|>" for ids in prompt_ids]
        return [tokenizer(turn)["input_ids"][: trainer.max_completion_length] for turn in turns], None

    trainer._generate_single_turn = generate_turn
