"""Write a model folder as one GGUF file, for llama.cpp and the programs on it.

The format, and the names of keys and tensors, come from llama.cpp's own package `gguf`. Its converter is in no package
of its authors, and refuses the bundled models: it knows tokenizers by a hash. Here a pre-tokenizer is recognised by its
definition. Each file is asked through llama.cpp afterwards, so that a wrong layout or tokenizer shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors import safe_open
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from rlvr.errors import InputError
from rlvr.export.quantization import OWN_TYPES

ARCHITECTURES = ("llama", "qwen2", "qwen3")  # transformers and llama.cpp use the same names
_OTHER_WAY = "Use --to merged, and convert the folder with llama.cpp's convert_hf_to_gguf.py."
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# llama.cpp's name of a byte-level pre-tokenizer, by its steps in tokenizer.json.
PRE_TOKENIZERS = {
    (_QWEN2, "ByteLevel"): "qwen2",
    (_QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1), "ByteLevel"): "llama-bpe",
    ("ByteLevel with its own pattern",): "gpt-2",
    ("Digits one by one", "ByteLevel with its own pattern"): "smollm",
}


def check_model(folder: Path) -> None:
    """Refuse, before a weight is loaded, a model or a tokenizer that can't be written."""
    config = _read(folder / "config.json")
    model_type, rope = config.get("model_type"), config.get("rope_parameters") or {}
    if model_type not in ARCHITECTURES:
        raise _unknown(config, f"its type {model_type} is none of {', '.join(ARCHITECTURES)}")
    kind = rope.get("rope_type", "default")
    if "rope_theta" not in rope or kind not in ("default", "llama3") or config.get("use_sliding_window"):
        raise _unknown(config, f"its positions ({kind}, or a sliding window) can't be written")
    if (folder / "tokenizer.json").is_file():
        _pre_tokenizer(_read(folder / "tokenizer.json"))


def write_gguf(folder: Path, file: Path, kind: str) -> None:
    """Write a model folder as a GGUF file of one of `OWN_TYPES`. Vectors stay in float32, as llama.cpp wants them."""
    config = _read(folder / "config.json")
    writer = gguf.GGUFWriter(file, config["model_type"])
    writer.add_file_type(gguf.LlamaFileType[f"{'ALL' if kind == 'float32' else 'MOSTLY'}_{OWN_TYPES[kind]}"])
    _add_parameters(writer, config)
    _add_tokenizer(writer, folder, config)
    for name, tensor in _tensors(folder, config):
        stored = gguf.GGMLQuantizationType[OWN_TYPES[kind] if tensor.ndim > 1 else "F32"]
        if tensor.shape[-1] % gguf.GGML_QUANT_SIZES[stored][0]:  # its rows are no whole number of blocks
            stored = gguf.GGMLQuantizationType.F16
        writer.add_tensor(name, gguf.quants.quantize(tensor, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()  # loads and converts one tensor after the other
    writer.close()


def _tensors(folder: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """The tensors in float32, with llama.cpp's names and layout. A tensor is loaded when it is written."""
    architecture = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == config["model_type"])
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    lazy = gguf.LazyNumpyTensor
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as opened:
            shapes = {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118
        for name, shape in shapes.items():
            new = names.get_name(name, try_suffixes=(".weight", ".bias"))
            if new is None:
                raise _unknown(config, f"its tensor {name} has no name in GGUF")
            meta = lazy.meta_with_dtype_and_shape("float32", tuple(shape))
            yield new, lazy(meta=meta, func=partial(_load, path, name, config))
    if config["rope_parameters"].get("rope_type") == "llama3":
        # By what each frequency of the rotation is divided.
        rope, width = config["rope_parameters"], _head_width(config)
        changed, _ = ROPE_INIT_FUNCTIONS["llama3"](LlamaConfig(**config), torch.device("cpu"))
        plain = 1.0 / rope["rope_theta"] ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
        yield "rope_freqs.weight", (plain / changed).numpy()


def _load(path: Path, name: str, config: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    with safe_open(path, framework="pt") as opened:
        tensor = opened.get_tensor(name).float()
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
    if heads and config["model_type"] == "llama":
        # Make neighbours of the dimensions that are rotated together: transformers has them half a head apart.
        tensor = tensor.unflatten(0, (config[heads], 2, -1)).transpose(1, 2).flatten(0, 2)
    return tensor.numpy()


def _head_width(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _add_parameters(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    heads, width = config["num_attention_heads"], _head_width(config)
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path, config: Mapping[str, Any]) -> None:
    content, size, kinds = _read(folder / "tokenizer.json"), config["vocab_size"], gguf.TokenType
    tokens = {number: (token, kinds.NORMAL) for token, number in content["model"]["vocab"].items()}
    for token in content["added_tokens"]:
        tokens[token["id"]] = (token["content"], kinds.CONTROL if token["special"] else kinds.USER_DEFINED)
    listed = [tokens.get(number, (f"[PAD{number}]", kinds.UNUSED)) for number in range(size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_pre_tokenizer(content))
    writer.add_token_list([token for token, _ in listed])
    writer.add_token_types([kind for _, kind in listed])
    special = gguf.SpecialVocab(folder, load_merges=True, n_vocab=size)
    special.add_special_token.setdefault("bos", False)
    special.add_to_gguf(writer, quiet=True)


def _pre_tokenizer(content: Mapping[str, Any]) -> str:
    """llama.cpp's name of a pre-tokenizer."""
    model, first = content["model"]["type"], content.get("pre_tokenizer") or {"type": "none"}
    steps = tuple(map(_step, first.get("pretokenizers", [first])))
    if model == "BPE" and steps in PRE_TOKENIZERS:
        return PRE_TOKENIZERS[steps]
    raise InputError(
        f"The tokenizer can't be written as GGUF: {model} with the pre-tokenizer {' + '.join(steps)} has no name in "
        f"llama.cpp that is known here. {_OTHER_WAY}",
        kind="unknown-tokenizer",
        key="--to",
    )


def _step(step: Mapping[str, Any]) -> str:
    if step["type"] == "Split":
        return str(step["pattern"].get("Regex"))
    own = {"ByteLevel": ("use_regex", "with its own pattern"), "Digits": ("individual_digits", "one by one")}
    option, words = own.get(step["type"], ("", ""))
    return f"{step['type']} {words}" if option and step.get(option, True) else str(step["type"])


def _unknown(config: Mapping[str, Any], why: str) -> InputError:
    return InputError(
        f"{'/'.join(config.get('architectures') or ['The model'])} can't be written as GGUF: {why}. {_OTHER_WAY}",
        kind="unknown-architecture",
        key="--to",
    )


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
