"""Code that loads what is published with transformers, and prints the answer to one prompt."""

from __future__ import annotations

from collections.abc import Mapping
from pprint import pformat
from typing import Any

from rlvr.formatting import mapping

_TRANSFORMERS = """\
from transformers import AutoModelForCausalLM, AutoTokenizer{imports}

tokenizer = AutoTokenizer.from_pretrained("{repo}")
model = AutoModelForCausalLM.from_pretrained("{repo}", device_map="auto"{options})

prompt = {prompt}
inputs = {inputs}
output = model.generate(**inputs.to(model.device), max_new_tokens={max_new_tokens}, do_sample=False)
print(tokenizer.decode(output[0][inputs["input_ids"].shape[1] :], skip_special_tokens=True))
"""
_CHAT_INPUTS = (
    'tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_tensors="pt", return_dict=True)'
)


def loading_code(
    repo: str, recipe: Mapping[str, Any], prompt: Any, *, max_new_tokens: int, kind: str, dtype: str | None
) -> str:
    """Python code that loads what is published, and asks it a text or messages.

    Args:
        kind: "adapter" or "model".
        dtype: of the weights; None: the recipe's.
    """
    is_chat, shown = not isinstance(prompt, str), pformat(prompt, width=100, sort_dicts=False)
    quantization, dtype = _quantization(recipe) if kind == "adapter" else "", dtype or recipe.get("dtype")
    options = [f'dtype="{dtype}"'] if dtype else []
    options += [f"quantization_config=BitsAndBytesConfig({quantization})"] if quantization else []
    return _TRANSFORMERS.format(
        repo=repo,
        prompt=shown,
        inputs=_CHAT_INPUTS if is_chat else 'tokenizer(prompt, return_tensors="pt")',
        imports=", BitsAndBytesConfig" if quantization else "",
        options="".join(f", {option}" for option in options),
        max_new_tokens=max_new_tokens,
    )


def _quantization(recipe: Mapping[str, Any]) -> str:
    """Options of the base's quantization as it was trained and measured; empty if it had none."""
    if not recipe.get("load_in_4bit"):
        return ""
    resolved = mapping(mapping(recipe.get("resolved")).get("quantization"))
    keys = ("bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "bnb_4bit_compute_dtype")
    options = {"load_in_4bit": True, **{key: resolved[key] for key in keys if key in resolved}}
    return ", ".join(f"{key}={value!r}" for key, value in options.items())
