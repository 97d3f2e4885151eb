"""Models of the families that recipes name: their real shapes, and small ones with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def _shape(
    hidden: int, inner: int, layers: int, heads: str, head: int, words: int, tied: bool = True
) -> dict[str, Any]:
    """Sizes as in a config.json. `heads` are those of queries and of keys: "16/8"."""
    queries, keys = heads.split("/")
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": int(queries),
        "num_key_value_heads": int(keys),
        "head_dim": head,
        "vocab_size": words,
        "tie_word_embeddings": tied,
        "max_position_embeddings": 32768,
    }


# From the config.json of each model, as far as sizes depend on it.
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen/Qwen2.5-0.5B-Instruct": ("qwen2", _shape(896, 4864, 24, "14/2", 64, 151936)),
    "Qwen/Qwen2.5-1.5B-Instruct": ("qwen2", _shape(1536, 8960, 28, "12/2", 128, 151936)),
    "Qwen/Qwen2.5-7B-Instruct": ("qwen2", _shape(3584, 18944, 28, "28/4", 128, 152064, tied=False)),
    "Qwen/Qwen3-0.6B": ("qwen3", _shape(1024, 3072, 28, "16/8", 128, 151936)),
    "Qwen/Qwen3-1.7B": ("qwen3", _shape(2048, 6144, 28, "16/8", 128, 151936)),
    "Qwen/Qwen3-4B": ("qwen3", _shape(2560, 9728, 36, "32/8", 128, 151936)),
    "Qwen/Qwen3-8B": ("qwen3", _shape(4096, 12288, 36, "32/8", 128, 151936, tied=False)),
    "Qwen/Qwen3.5-4B": ("qwen3_5_text", _shape(2560, 9216, 32, "16/4", 256, 248320)),
    "meta-llama/Llama-3.2-1B-Instruct": ("llama", _shape(2048, 8192, 16, "32/8", 64, 128256)),
    "meta-llama/Llama-3.2-3B-Instruct": ("llama", _shape(3072, 8192, 28, "24/8", 128, 128256)),
    "google/gemma-3-1b-it": ("gemma3_text", _shape(1152, 6912, 26, "4/1", 256, 262144)),
    "google/gemma-3-4b-it": ("gemma3", _shape(2560, 10240, 34, "8/4", 256, 262208)),
    "HuggingFaceTB/SmolLM3-3B": ("smollm3", _shape(2048, 11008, 36, "16/4", 128, 128256)),
    "microsoft/Phi-4-mini-instruct": ("phi3", _shape(3072, 8192, 32, "24/8", 128, 200064)),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": ("qwen2", _shape(1536, 8960, 28, "12/2", 128, 151936, tied=False)),
}
# By the model's name: its chat template in TRL, and the tokens that end a turn. TRL has no template of SmolLM3 and
# Phi-4-mini: those of Qwen3 (with the same switch for thoughts) and Phi-3 stand for them.
_CHATS: dict[str, tuple[str, list[str]]] = {
    "Qwen2.5": ("qwen2_5", ["<|im_end|>", "<|endoftext|>"]),
    "Qwen3-": ("qwen3", ["<|im_end|>", "<|endoftext|>"]),
    "Qwen3.5": ("qwen3_5_think", ["<|im_end|>", "<|endoftext|>"]),
    "Llama": ("llama3_2", ["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"]),
    "gemma": ("gemma3", ["<end_of_turn>", "<eos>"]),
    "SmolLM3": ("qwen3", ["<|im_end|>"]),
    "Phi": ("phi3", ["<|end|>", "<|endoftext|>"]),
    "DeepSeek": ("deepseek_r1_distill", ["<｜end▁of▁sentence｜>"]),
}
# What a small model of the architecture has instead.
_SMALL: dict[str, Any] = _shape(32, 64, 2, "4/2", 8, 0)
_SMALL_OF: dict[str, dict[str, Any]] = {
    "qwen3_5_text": {
        "num_hidden_layers": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
    },
    "gemma3_text": {"sliding_window": 64, "query_pre_attn_scalar": 8},
    "gemma3": {"sliding_window": 64, "query_pre_attn_scalar": 8},
    "phi3": {"partial_rotary_factor": 1.0},
}
_VISION = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "image_size": 896,
    "patch_size": 14,
}
_SMALL_VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


def _config(model_type: str, sizes: dict[str, Any], vision: dict[str, Any], image_tokens: int) -> Any:
    from transformers import AutoConfig

    if model_type == "gemma3":  # of images and text
        parts = {"text_config": sizes, "vision_config": vision}
        return AutoConfig.for_model("gemma3", **parts, mm_tokens_per_image=image_tokens)
    return AutoConfig.for_model(model_type, **sizes)


def real_config(model: str) -> Any:
    """The configuration of a model of the hub, for counting."""
    model_type, sizes = SHAPES[model]
    return _config(model_type, sizes, _VISION, 256)


def small_tokenizer(model: str) -> PreTrainedTokenizerFast:
    """A tokenizer of one token a byte, with the chat template of a model's family and the tokens that end its turns."""
    import trl
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    template, ends = next(chat for name, chat in _CHATS.items() if name in model)
    words = ["<|pad|>", *ends, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {"eos_token": ends[0], "bos_token": ends[-1], "pad_token": "<|pad|>", "extra_special_tokens": ends[1:]}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.chat_template = (Path(trl.__file__).parent / "chat_templates" / f"{template}.jinja").read_text("utf-8")
    return fast


def write_small_model(model: str, folder: Path) -> Path:
    """Write a model of the same architecture, with random weights, and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    model_type, _ = SHAPES[model]
    tokenizer = small_tokenizer(model)
    tokenizer.save_pretrained(folder)
    _, ends = next(chat for name, chat in _CHATS.items() if name in model)
    end_ids = tokenizer.convert_tokens_to_ids(ends)
    numbers = {"vocab_size": len(tokenizer), "pad_token_id": 0, "eos_token_id": end_ids[0], "bos_token_id": end_ids[-1]}
    sizes = {**_SMALL, **_SMALL_OF.get(model_type, {}), **numbers}
    torch.manual_seed(0)
    small = AutoModelForCausalLM.from_config(_config(model_type, sizes, _SMALL_VISION, 4))
    small.generation_config = GenerationConfig(eos_token_id=end_ids, pad_token_id=0)
    small.save_pretrained(folder)
    return folder
