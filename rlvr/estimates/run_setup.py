"""The settings of a run that determine its memory and time, with TRL's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr.config.batch_plan import batch_sizes, sorts_by_length
from rlvr.config.recipe import Recipe, value_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class RunSetup:
    """The settings of a run that determine its memory and time."""

    settings: Mapping[str, Any]  # the recipe's flat keys
    launcher: str  # python, ddp, zero1, zero2, zero3 (each also with `_offload`), fsdp2 (rlvr.training.launch.launcher)
    processes: int  # number of training processes, one GPU each
    loaded: int  # bytes of a loaded weight (`dtype`)
    sixteen: bool  # whether matrices are multiplied in 16 bits (`bf16`, TRL's default, or `fp16`)
    attention: str  # eager, sdpa or flash_attention_2
    rows: int  # completions of a training step on one GPU
    generated: int  # completions of a generation on one GPU
    at_once: int  # completions that transformers generates at once on one GPU
    prompt_tokens: int  # maximum
    completion_tokens: int  # maximum
    accumulation: int  # micro-batches of an update (`gradient_accumulation_steps`)
    cycle: int  # micro-batches that train on one generation
    sorted_rows: bool  # whether micro-batches hold completions of similar length (rlvr/training/micro_batches.py)

    @property
    def rounds(self) -> int:
        """Rounds in which transformers makes a generation."""
        return -(-self.generated // self.at_once)

    @property
    def deepspeed(self) -> bool:
        return self.launcher.startswith("zero")

    @property
    def stage(self) -> int:
        """ZeRO's stage; 0 without DeepSpeed."""
        return int(self.launcher[4]) if self.deepspeed else 0

    @property
    def offloads(self) -> bool:
        return self.launcher.endswith("_offload")

    @property
    def fsdp(self) -> bool:
        return self.launcher.startswith("fsdp")

    @property
    def shards_weights(self) -> int:
        """Number of GPUs that the weights are sharded over."""
        return self.processes if self.fsdp or self.stage == 3 else 1

    @property
    def weight(self) -> int:
        """Bytes of a weight while training: DeepSpeed converts the whole model to 16 bits."""
        return 2 if self.deepspeed and self.sixteen else self.loaded

    @property
    def autocast(self) -> bool:
        """Whether torch casts in each operation: mixed precision without DeepSpeed, which converts the model once."""
        return self.sixteen and not self.deepspeed

    @property
    def compute(self) -> int:
        """Bytes of a number in computations."""
        return 2 if self.sixteen else self.weight

    @property
    def quantised(self) -> bool:
        return bool(self.settings.get("load_in_4bit"))

    @property
    def peft(self) -> bool:
        return bool(self.settings.get("use_peft"))

    @property
    def checkpointing(self) -> bool:
        return bool(value_of(self.settings, "activation_checkpointing"))

    @property
    def vllm(self) -> str:
        """`colocate`, `server`, or empty if transformers generates."""
        return str(self.settings.get("vllm_mode") or "colocate") if self.settings.get("use_vllm") else ""

    @property
    def merged(self) -> bool:
        """Whether transformers generates from a merged copy of the model."""
        return self.peft and not self.vllm and self.settings.get("rollout_weights") == "merged"

    @property
    def vllm_share(self) -> float:
        """The part of the GPU that vLLM takes, with TRL's default."""
        return float(self.settings.get("vllm_gpu_memory_utilization") or 0.3)

    @property
    def tokens(self) -> int:
        """Tokens of the largest training step on one GPU: one of its prompts and completions has the maximum length."""
        return self.rows * (self.prompt_tokens + self.completion_tokens)

    @property
    def mid_update(self) -> bool:
        """Whether a generation may interrupt the accumulation of gradients."""
        return self.accumulation > self.cycle or self.cycle % self.accumulation != 0

    @property
    def replayed(self) -> bool:
        """Whether old log-probabilities need another forward pass (TRL's rule)."""
        return self.accumulation % self.cycle != 0 or bool(self.vllm)

    @property
    def optimizer(self) -> str:
        return str(self.settings.get("optim") or "adamw_torch_fused")  # the default with PyTorch 2.8


def read_setup(recipe: Recipe, config: PretrainedConfig, processes: int, launcher: str, prompt_tokens: int) -> RunSetup:
    """Read the setup of a recipe.

    Args:
        prompt_tokens: of the longest prompt.
    """
    settings = recipe.settings
    sizes = batch_sizes(recipe, processes)
    cpu = bool(settings.get("use_cpu"))
    sixteen = bool(settings.get("bf16", not settings.get("fp16") and not cpu) or settings.get("fp16"))
    dtype = str(value_of(settings, "dtype"))
    if dtype == "auto":
        dtype = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    attention = settings.get("attn_implementation") or "auto"
    generated = sizes.completions // processes
    return RunSetup(
        settings=settings,
        launcher=launcher,
        processes=processes,
        loaded=_BYTES.get(dtype, 4),
        sixteen=sixteen,
        attention="sdpa" if attention == "auto" else str(attention),
        rows=int(value_of(settings, "per_device_train_batch_size")),
        generated=generated,
        at_once=min(settings.get("per_device_generation_batch_size") or generated, generated),
        prompt_tokens=prompt_tokens,
        completion_tokens=int(settings.get("max_completion_length") or 512),
        accumulation=sizes.accumulation,
        cycle=sizes.steps * sizes.iterations,
        sorted_rows=sorts_by_length({**settings, "steps_per_generation": sizes.steps}),
    )
