"""How to load what is published: a piece of code for each library that can, which prints the answer to one prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pprint import pformat
from typing import Any

from rlvr.formatting import mapping
from rlvr.modeling.vllm_engines import room_for_rank


@dataclass(frozen=True)
class Snippet:
    """Python code, and the library that it shows."""

    library: str
    code: str


_TRANSFORMERS = """\
{% if base and peft %}
from peft import PeftModel
{% endif %}
from transformers import AutoModelForCausalLM, AutoTokenizer{{ ", BitsAndBytesConfig" if quantization }}

tokenizer = AutoTokenizer.from_pretrained("{{ repo }}")
{% if quantization %}
quantization = BitsAndBytesConfig({{ quantization }})
{% endif %}
model = AutoModelForCausalLM.from_pretrained(
    "{{ base if peft else repo }}", device_map="auto"{{ dtype }}{{ quantized }}
)
{% if peft %}
model = PeftModel.from_pretrained(model, "{{ repo }}")
{% endif %}

prompt = {{ prompt }}
{% if chat %}
inputs = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_tensors="pt", return_dict=True)
{% else %}
inputs = tokenizer(prompt, return_tensors="pt")
{% endif %}
output = model.generate(**inputs.to(model.device), max_new_tokens={{ max_new_tokens }}, do_sample=False)
print(tokenizer.decode(output[0][inputs["input_ids"].shape[1] :], skip_special_tokens=True))
"""
_VLLM = """\
{% if base %}
from huggingface_hub import snapshot_download
{% endif %}
from vllm import LLM, SamplingParams
{% if base %}
from vllm.lora.request import LoRARequest
{% endif %}

prompt = {{ prompt }}
sampling = SamplingParams(temperature=0, max_tokens={{ max_new_tokens }})
{% if base %}
llm = LLM("{{ base }}"{{ dtype }}, enable_lora=True, max_lora_rank={{ rank }})
adapter = LoRARequest("adapter", 1, snapshot_download("{{ repo }}"))
output = llm.{{ "chat" if chat else "generate" }}(prompt, sampling, lora_request=adapter)
{% else %}
llm = LLM("{{ repo }}"{{ dtype }})
output = llm.{{ "chat" if chat else "generate" }}(prompt, sampling)
{% endif %}
print(output[0].outputs[0].text)
"""

_LLAMA_CPP = """\
import xllamacpp
from huggingface_hub import hf_hub_download

parameters = xllamacpp.CommonParams()
parameters.model.path = hf_hub_download("{{ repo }}", "{{ gguf }}")
server = xllamacpp.Server(parameters)

prompt = {{ prompt }}
{% if chat %}
answer = server.handle_chat_completions({"messages": prompt, "max_tokens": {{ max_new_tokens }}, "temperature": 0})
print(answer["choices"][0]["message"]["content"])
{% else %}
answer = server.handle_completions({"prompt": prompt, "max_tokens": {{ max_new_tokens }}, "temperature": 0})
print(answer["choices"][0]["text"])
{% endif %}
"""


def snippets(
    repo: str,
    recipe: Mapping[str, Any],
    prompt: Any,
    *,
    max_new_tokens: int,
    base: str | None = None,
    dtype: str | None = None,
    gguf: str | None = None,
) -> list[Snippet]:
    """The pieces for a model, for an adapter of a base, or for a GGUF file.

    Args:
        repo: the id of what is published.
        prompt: a text, or messages.
        base: the id of an adapter's base on the hub; None for a whole model.
        dtype: of the weights; default: the recipe's.
        gguf: the name of a file for llama.cpp.
    """
    import jinja2

    quantization, dtype = _quantization(recipe) if base else "", dtype or recipe.get("dtype")
    values = {
        "repo": repo,
        "base": base,
        "dtype": f', dtype="{dtype}"' if dtype else "",
        "quantization": quantization,
        "quantized": ", quantization_config=quantization" if quantization else "",
        "rank": room_for_rank(int(recipe.get("lora_r", 16))),
        "prompt": pformat(prompt, width=100, sort_dicts=False),
        "chat": not isinstance(prompt, str),
        "max_new_tokens": max_new_tokens,
        "gguf": gguf,
    }
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)  # code, not HTML
    transformers, vllm, llama_cpp = map(environment.from_string, (_TRANSFORMERS, _VLLM, _LLAMA_CPP))
    if gguf is not None:
        return [Snippet("llama.cpp, by the package xllamacpp", llama_cpp.render(values))]
    if base is None:
        return [Snippet("transformers", transformers.render(values)), Snippet("vLLM", vllm.render(values))]
    return [
        Snippet("transformers, with PEFT installed", transformers.render(values)),
        Snippet("PEFT", transformers.render(values, peft=True)),
        Snippet("vLLM", vllm.render(values)),
    ]


def _quantization(recipe: Mapping[str, Any]) -> str:
    """Options of the base's quantization as it was trained and measured; empty if it had none."""
    if recipe.get("load_in_8bit"):
        return "load_in_8bit=True"
    if not recipe.get("load_in_4bit"):
        return ""
    resolved = mapping(mapping(recipe.get("resolved")).get("quantization"))
    keys = ("bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "bnb_4bit_compute_dtype")
    options = {"load_in_4bit": True, **{key: resolved[key] for key in keys if key in resolved}}
    return ", ".join(
        f'{key}="{value}"' if isinstance(value, str) else f"{key}={value}" for key, value in options.items()
    )
