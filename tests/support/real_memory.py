"""The tensors of small real models on a CPU, which the tests of rlvr/estimates compare with its numbers.

On a CPU, weights, adapters, optimizer states, KV cache and saved activations are the same tensors as on a GPU, and
temporary tensors nearly so. CUDA's context, fragmentation, NCCL, FlashAttention and TRL's Triton kernel are missing.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Qwen2Config

from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.estimates import activations
from rlvr.estimates import parameters as counting
from rlvr.estimates.memory import adapter_bytes
from rlvr.estimates.run_setup import RunSetup, read_setup
from rlvr.modeling.loading import keep_4bit_trainable_on_cpu

LORA = {"use_peft": True, "lora_r": 16, "lora_target_modules": "all-linear"}
# How numbers are kept while training: the settings, and the launcher that makes it so.
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "full, float32": ({"dtype": "float32", "bf16": False}, "python"),
    "full, float32 with bf16: true": ({"dtype": "float32", "bf16": True}, "python"),
    "full, bfloat16": ({"dtype": "bfloat16", "bf16": True}, "zero2"),
    "LoRA, float32": ({**LORA, "dtype": "float32", "bf16": False}, "python"),
    "LoRA or QLoRA, bfloat16": ({**LORA, "dtype": "bfloat16", "bf16": True}, "python"),
    "LoRA or QLoRA, bfloat16, DeepSpeed": ({**LORA, "dtype": "bfloat16", "bf16": True}, "zero2"),
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def small(layers: int = 2, hidden: int = 256, vocabulary: int = 1000) -> Qwen2Config:
    """A Qwen2 of a real one's proportions: 4 query heads for a key head, a feed-forward part 2.75 times as wide."""
    return Qwen2Config(
        hidden_size=hidden,
        intermediate_size=hidden * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=hidden // 128,
        vocab_size=vocabulary,
        tie_word_embeddings=True,
    )


@dataclass(frozen=True)
class Case:
    """A model, how it is trained, and how long its rows are."""

    config: Any
    settings: dict[str, Any]
    launcher: str = "python"
    rows: int = 4
    prompt: int = 32
    completion: int = 96

    @property
    def setup(self) -> RunSetup:
        settings = {
            "model_name_or_path": "m",
            "per_device_train_batch_size": self.rows,
            "num_generations": self.rows,
            "max_completion_length": self.completion,
            **self.settings,
        }
        recipe = Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), None, settings)
        return read_setup(recipe, self.config, 1, self.launcher, self.prompt)

    @property
    def parameters(self) -> counting.Parameters:
        return counting.count(self.config)

    @property
    def shape(self) -> counting.Shape:
        return counting.shape(self.config, self.parameters)

    @property
    def adapter(self) -> counting.Adapter | None:
        return counting.adapter(self.parameters, self.config, self.settings) if self.setup.peft else None


def build(case: Case) -> Any:
    """The real model of a case, with random weights and its adapter, as training has it."""
    setup = case.setup
    dtype = torch.bfloat16 if setup.weight == 2 else DTYPES[case.settings["dtype"]]
    model = AutoModelForCausalLM.from_config(case.config, dtype=dtype, attn_implementation=setup.attention)
    if setup.quantised:
        model = quantise(model, case.settings, dtype)
    if setup.peft:
        targets, rank = case.settings.get("lora_target_modules"), case.settings["lora_r"]
        model = get_peft_model(model, LoraConfig(r=rank, target_modules=targets, task_type="CAUSAL_LM"))
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(torch.float32 if adapter_bytes(setup) == 4 else torch.bfloat16)
    model.train()
    if setup.checkpointing:
        if setup.peft:
            model.enable_input_require_grads()
        model.activation_checkpointing_enable({"use_reentrant": False})
    return model


def quantise(model: Any, settings: dict[str, Any], dtype: torch.dtype) -> Any:
    """The model in 4 bits, as `from_pretrained` loads it."""
    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=dtype,
        bnb_4bit_use_double_quant=bool(settings.get("use_bnb_nested_quant")),
        bnb_4bit_quant_storage=settings.get("bnb_4bit_quant_storage"),
    )
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, quantization_config=quantization, device_map={"": "cpu"}
        )
    keep_4bit_trainable_on_cpu(model)
    return model


def weight_bytes(model: Any) -> int:
    """Bytes of all weights and of what is needed to read quantised ones; tied weights once."""
    tensors = [*model.parameters()]
    for parameter in model.parameters():
        state = getattr(parameter, "quant_state", None)
        if state is not None:
            tensors += [state.absmax, state.code]
            tensors += [state.offset, state.state2.absmax, state.state2.code] if state.nested else []
    return _bytes(tensors)


def adapter_bytes_of(model: Any) -> int:
    return _bytes([parameter for parameter in model.parameters() if parameter.requires_grad])


def optimizer_bytes(model: Any) -> int:
    """Bytes of AdamW's states after an update."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    made = torch.optim.AdamW(trained)
    for parameter in trained:
        parameter.grad = torch.ones_like(parameter)
    made.step()
    moments = [value for state in made.state.values() for name, value in state.items() if name != "step"]
    return _bytes(moments)


def cache_bytes(case: Case) -> int:
    """Bytes of the cache after generating to the end: the last token is never read, hence one fewer."""
    model = build(case).eval()
    ids, mask = _rows(case, case.prompt)
    count = case.completion + 1
    with torch.no_grad():
        output = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=True,
            return_dict_in_generate=True,
        )
    return _bytes([tensor for layer in output.past_key_values.layers for tensor in (layer.keys, layer.values)])


def saved_bytes(case: Case) -> int:
    """Bytes of the tensors that autograd saves in a forward pass of the blocks, weights and their casts left out."""
    model = build(case)
    ids, mask = _rows(case, case.prompt + case.completion)
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    shapes = {tuple(tensor.shape) for tensor in model.parameters()}
    shapes |= {shape[::-1] for shape in shapes}
    # Casts of weights are told by their shapes, so rows of tokens must not have one of these.
    assert case.rows * (case.prompt + case.completion) not in {side for shape in shapes for side in shape}
    saved: dict[int, torch.Tensor] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address and address not in own and tuple(tensor.shape) not in shapes:
            saved[address] = tensor  # kept alive, so that no other tensor gets its address
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor), _autocast(case):
        _blocks(model)(input_ids=ids, attention_mask=mask, use_cache=False)
    return _bytes(list(saved.values()))


def step_peak(case: Case) -> int:
    """Peak bytes above the start of a forward and a backward pass of the blocks.

    It is the second of two passes, so that the weights' gradients exist at the start and don't count.
    """
    model = build(case)
    ids, mask = _rows(case, case.prompt + case.completion)
    peak = 0
    for _ in range(2):
        with _watched() as watched:
            with _autocast(case):
                hidden = _blocks(model)(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
            torch.autograd.backward(hidden, torch.ones_like(hidden))
            del hidden
        peak = watched[0]
    return peak


def prefill_peak(case: Case) -> int:
    """Peak bytes above the start of a prefill without gradients."""
    model = build(case).eval()
    ids, mask = _rows(case, case.prompt)
    with _watched() as watched, torch.no_grad(), torch.autocast("cpu", enabled=False):
        _blocks(model)(input_ids=ids, attention_mask=mask, use_cache=True)
    return watched[0]


def tile_bytes(tokens: int, hidden: int = 64, vocabulary: int = 500) -> int:
    """Bytes of the largest tensor that TRL's log-probabilities make, float32."""
    from trl.kernels.chunked_logprob import ChunkedLogProbFunction
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE

    states, head = torch.randn(tokens, hidden), torch.randn(vocabulary, hidden)
    targets = torch.zeros(tokens, dtype=torch.long)
    with _watched() as watched, torch.no_grad():
        ChunkedLogProbFunction.apply(
            states, head, None, targets, 1.0, _CHUNKED_LOGPROB_CHUNK_SIZE, None, 1.0, ("log_probs", "entropy")
        )
    return watched[1]


def _rows(case: Case, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(3, case.config.vocab_size, (case.rows, length))
    mask = torch.ones_like(ids)
    mask[:, :3] = 0  # padding, as prompts of different lengths have it: without a mask attention keeps less
    return ids, mask


def _blocks(model: Any) -> Any:
    return (model.get_base_model() if hasattr(model, "peft_config") else model).model


def _autocast(case: Case) -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=case.setup.autocast)


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}.values())


@contextmanager
def _watched() -> Iterator[list[int]]:
    """Yields a list that afterwards holds the peak above the start and the largest single allocation, in bytes."""
    sizes: list[int] = []
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        first = torch.empty(1)  # its event says how much was allocated before
        yield sizes
    del first
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    memory = [
        event["args"] for event in events if event.get("name") == "[memory]" and event["args"]["Device Type"] == 0
    ]
    start = memory[0]["Total Allocated"] - memory[0]["Bytes"]
    sizes += [max(one["Total Allocated"] for one in memory) - start, max(one["Bytes"] for one in memory)]


def expected_step(case: Case) -> float:
    """The estimate of `step_peak`: what is kept, what passes, and autocast's copies of trained weights."""
    setup, shape, adapter = case.setup, case.shape, case.adapter
    copies = 0
    if setup.autocast and (setup.peft or setup.loaded == 4):
        trained = adapter.count if adapter else sum(matrix.count for matrix in case.parameters.matrices)
        # With checkpointing each block's copies are made and dropped again in the backward pass.
        copies = trained * setup.compute // (shape.layers if setup.checkpointing else 1)
    return activations.kept(shape, setup, adapter) + activations.passing(shape, setup) + copies


def expected_prefill(case: Case) -> float:
    """The estimate of `prefill_peak`: what reading the prompts takes, and the cache that it fills."""
    width = adapter_bytes(case.setup) if case.setup.peft else 0
    filled = case.prompt / (case.prompt + case.completion)
    return activations.prefill(case.shape, case.setup, width) + activations.cache(case.shape, case.setup) * filled
