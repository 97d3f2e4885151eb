"""Write a model folder as one GGUF file, for llama.cpp and the programs on it.

The format, and the names of keys and tensors, come from llama.cpp's own package `gguf`. Its converter is in no package
of its authors, and refuses the bundled models: it knows tokenizers by a hash. Here a pre-tokenizer is recognised by its
definition. Each file is asked through llama.cpp afterwards, so that a wrong layout or tokenizer shows.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.errors import InputError

if TYPE_CHECKING:
    import gguf
    import numpy as np
    import torch

INSTALL = "Run `pip install -e '.[gguf]' -c constraints.txt`"
# transformers' model_type, and llama.cpp's architecture.
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
OWN_TYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "q8_0": "Q8_0"}
# By llama-quantize, which mixes several types. Bits a weight, to estimate sizes: its own figures for Llama 3.1 8B.
LLAMA_QUANTIZE = {"q4_0": 4.7, "q4_k_s": 4.7, "q4_k_m": 4.9, "q5_k_s": 5.6, "q5_k_m": 5.7, "q6_k": 6.6}
BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "q8_0": 8.5, **LLAMA_QUANTIZE}

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


def check_installed() -> None:
    """Check that the extra `gguf` is installed.

    Raises:
        InputError: of kind "package-not-installed".
    """
    for package in ("gguf", "xllamacpp"):
        if importlib.util.find_spec(package) is None:
            message = f"--to gguf: the package {package} is not installed. {INSTALL}."
            raise InputError(message, kind="package-not-installed", key="--to")


def read_quantizations(text: str | None) -> list[str]:
    """Read --quantization: types, separated by commas.

    Raises:
        InputError: an unknown type, or one that needs llama-quantize, which isn't there.
    """
    names = [] if text is None else [name.strip().lower() for name in text.split(",")]
    known = ["q8_0", *LLAMA_QUANTIZE]
    for name in names:
        if name not in known:
            message = f"--quantization: {name or 'nothing'} is none of {', '.join(known)}."
            raise InputError(message, kind="invalid-flag", key="--quantization")
        if name in LLAMA_QUANTIZE and shutil.which("llama-quantize") is None:
            raise InputError(
                f"--quantization {name}: llama-quantize is not on the PATH. Install llama.cpp (brew install llama.cpp, "
                "or https://github.com/ggml-org/llama.cpp/releases), or use q8_0, which needs no program.",
                kind="program-not-found",
                key="--quantization",
            )
    return names


def check_model(folder: Path) -> None:
    """Check, before a weight is loaded, that a model and its tokenizer can be written.

    Raises:
        InputError: of kind "unknown-architecture" or "unknown-tokenizer".
    """
    config = _read(folder / "config.json")
    _architecture(config)
    if (folder / "tokenizer.json").is_file():
        _tokenizer_kind(_read(folder / "tokenizer.json"))


def write_gguf(folder: Path, file: Path, kind: str) -> None:
    """Write a model folder as a GGUF file.

    Args:
        kind: one of `OWN_TYPES`. Vectors stay in float32, as llama.cpp wants them.
    """
    import gguf

    config = _read(folder / "config.json")
    writer = gguf.GGUFWriter(file, _architecture(config))
    _add_parameters(writer, config, kind)
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


def quantize(source: Path, file: Path, kind: str) -> None:
    """Quantise a GGUF file with llama.cpp's own program.

    Raises:
        InputError: of kind "llama-cpp-failed".
    """
    done = subprocess.run(["llama-quantize", source, file, kind.upper()], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()] or ["no output"]
        message = f"llama-quantize could not write {kind}: {lines[-1].strip()}. Choose another --quantization."
        raise InputError(message, kind="llama-cpp-failed", key="--quantization")


# ----------------------------------------------------------------------------------------------------------------------
# Weights


def _tensors(folder: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """The tensors in float32, with llama.cpp's names and layout. A tensor is loaded when it is written."""
    import gguf
    from safetensors import safe_open

    architecture = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == _architecture(config))
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
    factors = _rope_factors(config)
    if factors is not None:
        yield "rope_freqs.weight", factors.numpy()


def _load(path: Path, name: str, config: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as opened:
        tensor = opened.get_tensor(name).float()
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
    if heads and _architecture(config) == "llama":
        # Make neighbours of the dimensions that are rotated together: transformers has them half a head apart.
        tensor = tensor.unflatten(0, (config[heads], 2, -1)).transpose(1, 2).flatten(0, 2)
    return tensor.numpy()


# ----------------------------------------------------------------------------------------------------------------------
# Parameters


def _add_parameters(writer: gguf.GGUFWriter, config: Mapping[str, Any], kind: str) -> None:
    import gguf

    heads = config["num_attention_heads"]
    rope = config["rope_parameters"]
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_file_type(gguf.LlamaFileType[f"{'ALL' if kind == 'float32' else 'MOSTLY'}_{OWN_TYPES[kind]}"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    width = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _rope_factors(config: Mapping[str, Any]) -> torch.Tensor | None:
    """By what each rotation frequency is divided (Llama 3.1's `rope_type: llama3`); None without such a change."""
    import torch
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = config["rope_parameters"]
    if rope.get("rope_type", "default") == "default":
        return None
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    changed, _ = ROPE_INIT_FUNCTIONS["llama3"](LlamaConfig(**config), torch.device("cpu"))
    plain = 1.0 / rope["rope_theta"] ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    return plain / changed


def _architecture(config: Mapping[str, Any]) -> str:
    model_type = str(config.get("model_type"))
    if model_type not in ARCHITECTURES:
        raise _unknown(config, f"its type {model_type} is none of {', '.join(ARCHITECTURES)}")
    rope = config.get("rope_parameters") or {}
    kind = rope.get("rope_type", "default")
    if "rope_theta" not in rope or kind not in ("default", "llama3") or config.get("use_sliding_window"):
        raise _unknown(config, f"its positions ({kind}, or a sliding window) can't be written")
    return ARCHITECTURES[model_type]


def _unknown(config: Mapping[str, Any], why: str) -> InputError:
    return InputError(
        f"{'/'.join(config.get('architectures') or ['The model'])} can't be written as GGUF: {why}. {_OTHER_WAY}",
        kind="unknown-architecture",
        key="--to",
    )


_OTHER_WAY = "Use --to merged, and convert the folder with llama.cpp's convert_hf_to_gguf.py."


# ----------------------------------------------------------------------------------------------------------------------
# Tokenizer


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path, config: Mapping[str, Any]) -> None:
    import gguf

    content = _read(folder / "tokenizer.json")
    model, pre = _tokenizer_kind(content)
    added = {token["id"]: token for token in content["added_tokens"]}
    by_id = {number: token for token, number in content["model"]["vocab"].items()}
    by_id |= {number: token["content"] for number, token in added.items()}
    tokens, kinds = [], []
    for number in range(config["vocab_size"]):
        token = by_id.get(number)
        tokens.append(f"[PAD{number}]" if token is None else token)
        kinds.append(_token_kind(token, added.get(number), model))
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    if model == "llama":
        # llama.cpp merges by score here. That of a token is the place of the merge that makes it.
        ranks = {"".join(_pair(merge)): place for place, merge in enumerate(content["model"]["merges"], 1)}
        writer.add_token_scores([-float(ranks.get(token, 0)) for token in tokens])
        writer.add_add_space_prefix(_adds_space(content))
    special = gguf.SpecialVocab(folder, load_merges=model == "gpt2", n_vocab=config["vocab_size"])
    special.add_special_token.setdefault("bos", False)
    special.add_to_gguf(writer, quiet=True)


def _token_kind(token: str | None, added: Mapping[str, Any] | None, model: str) -> int:
    import gguf

    kinds = gguf.TokenType
    if token is None:
        return kinds.UNUSED
    if added is not None:
        return kinds.CONTROL if added["special"] else kinds.USER_DEFINED
    is_byte = model == "llama" and len(token) == 6 and token.startswith("<0x") and token.endswith(">")
    return kinds.BYTE if is_byte else kinds.NORMAL


def _tokenizer_kind(content: Mapping[str, Any]) -> tuple[str, str]:
    """llama.cpp's names of a tokenizer's model and of its pre-tokenizer.

    Raises:
        InputError: of kind "unknown-tokenizer".
    """
    model = content["model"]
    steps = tuple(_steps(content.get("pre_tokenizer")))
    if model["type"] == "BPE" and steps in PRE_TOKENIZERS:
        return "gpt2", PRE_TOKENIZERS[steps]
    if model["type"] == "BPE" and model.get("byte_fallback") and set(steps) <= {"Metaspace", "Split spaces"}:
        return "llama", "default"
    raise InputError(
        f"The tokenizer can't be written as GGUF: {model['type']} with the pre-tokenizer {' + '.join(steps) or 'none'} "
        f"has no name in llama.cpp that is known here. {_OTHER_WAY}",
        kind="unknown-tokenizer",
        key="--to",
    )


def _steps(step: Mapping[str, Any] | None) -> Iterator[str]:
    kind = (step or {}).get("type")
    if step is None:
        return
    if kind == "Sequence":
        for part in step["pretokenizers"]:
            yield from _steps(part)
    elif kind == "Split":
        pattern = step["pattern"]
        yield "Split spaces" if pattern.get("String") == " " else str(pattern.get("Regex", pattern))
    elif kind == "ByteLevel":
        yield "ByteLevel with its own pattern" if step.get("use_regex", True) else "ByteLevel"
    elif kind == "Digits":
        yield "Digits one by one" if step["individual_digits"] else "Digits"
    else:
        yield str(kind)


def _adds_space(content: Mapping[str, Any]) -> bool:
    """Whether a text gets a space in front: by the normaliser (Llama 2), or by Metaspace."""
    parts = (content.get("normalizer") or {}).get("normalizers") or [content.get("normalizer") or {}]
    scheme = (content.get("pre_tokenizer") or {}).get("prepend_scheme")
    return any(part.get("type") == "Prepend" for part in parts) or scheme in ("first", "always")


def _pair(merge: str | list[str]) -> list[str]:
    return merge.split(" ") if isinstance(merge, str) else merge


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
