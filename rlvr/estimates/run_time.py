"""Estimate the duration and cost of a run: a range, from the assumptions in this file.

Generating is bound by memory: for each token all weights are read, and the cache ("Efficiently Scaling Transformer
Inference", arXiv:2211.05102, section 2). transformers launches its kernels one after the other, so that launching is
added to this. Training is bound by arithmetic: 6 operations a weight and token, 2 more with
activation checkpointing, 2 fewer with an adapter, whose frozen weights need no gradients ("Scaling Laws for Neural
Language Models", arXiv:2001.08361, section 2.1, and arXiv:2205.05198). Real programs reach a part of a GPU's speed, and
that part is the assumption: `FAST` and `SLOW`. Their launches and their arithmetic contain what was measured on an H100
(docs/training.md).

Not included: rewards, loading, evaluation, checkpoints, and communication between GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.config.recipe import value_of
from rlvr.estimates import activations
from rlvr.estimates.machines import Gpu, Machine
from rlvr.estimates.memory import GIB, MEAN_LENGTH, MERGED_BYTES, mean_tokens, vllm_without_cache
from rlvr.estimates.parameters import Adapter, Parameters, Shape
from rlvr.estimates.run_setup import RunSetup


@dataclass(frozen=True)
class Utilisation:
    """An assumption on the utilisation of a GPU."""

    bandwidth: float  # share of the memory's bandwidth while generating
    arithmetic: float  # share of the arithmetic peak while training ("model FLOPs utilisation", without recomputation)
    launch_ms: float  # milliseconds that `transformers` needs to launch the kernels of a block
    vllm_launch_ms: float  # the same for vLLM, which replays CUDA graphs
    adapter_launch_ms: float  # added by an adapter
    vllm_adapter_launch_ms: float
    length: float  # mean completion length, as a share of the maximum


# Milliseconds as measured on an H100 (docs/training.md): 0.8 without an adapter, 2.0 with LoRA, 2.5 with QLoRA.
FAST = Utilisation(0.8, 0.4, 0.5, 0.05, adapter_launch_ms=1.0, vllm_adapter_launch_ms=0.05, length=MEAN_LENGTH)
SLOW = Utilisation(0.4, 0.15, 1.5, 0.2, adapter_launch_ms=2.0, vllm_adapter_launch_ms=0.2, length=1.0)

# Bytes moved for a number in 4 bits in a multiplication: bitsandbytes reads half a byte, writes 16 bits, and the
# multiplication reads these.
_MOVED_IN_4_BITS = 4.5


@dataclass(frozen=True)
class RunTime:
    """Hours of a run, from fast to slow: in total, and for generation."""

    total: tuple[float, float]
    generating: tuple[float, float]

    def dollars(self, machine: Machine, processes: int) -> tuple[float, float] | None:
        """Cost of the machines for that many processes; None if the price is unknown."""
        if machine.price is None:
            return None
        rate = machine.price * machine.needed(processes)
        return self.total[0] * rate, self.total[1] * rate


def run_time(
    parameters: Parameters, adapter: Adapter | None, shape: Shape, setup: RunSetup, gpu: Gpu, *, steps: int
) -> RunTime | None:
    """Estimate the hours of `steps` updates; None if the GPU's speed is unknown."""
    if not gpu.bandwidth or not gpu.compute:
        return None
    estimates = []
    for pace in (FAST, SLOW):
        cycles = steps * setup.accumulation / setup.cycle
        generating = cycles * generation_seconds(parameters, adapter, shape, setup, gpu, pace)
        micro_batches = steps * setup.accumulation
        training = micro_batches * training_seconds(parameters, adapter, shape, setup, gpu, pace)
        estimates.append((generating / 3600, (generating + training) / 3600))
    (fast, fast_all), (slow, slow_all) = estimates
    return RunTime((fast_all, slow_all), (fast, slow))


def generation_seconds(
    parameters: Parameters, adapter: Adapter | None, shape: Shape, setup: RunSetup, gpu: Gpu, pace: Utilisation
) -> float:
    """Seconds of one generation: the time of a token of all completions of a round, times their length and the rounds.

    A token takes the longer of two, moving weights and cache or the arithmetic, and launching the kernels: added by
    transformers, and hidden behind the others by vLLM. A round of transformers lasts until its longest completion ends.
    vLLM fills the places of completions that have ended, so the mean length counts.
    """
    if setup.vllm:
        together = vllm_concurrency(parameters, adapter, shape, setup, gpu)
        rounds, length = -(-setup.generated // together), setup.completion_tokens * pace.length
    else:
        together, rounds, length = setup.at_once, setup.rounds, setup.completion_tokens
    filled = activations.cache(shape, setup, together, setup.prompt_tokens + length / 2)
    moved = _weights_moved(parameters, shape, setup)
    moved += filled if setup.vllm else filled * _cache_passes(shape, setup) + 2 * activations.sampled(shape, setup)
    numbers = parameters.computed + shape.vocabulary * shape.hidden
    speed = gpu.compute * 1e12 * pace.arithmetic
    adapted = setup.peft and not setup.merged
    launch = _launch_ms(setup, pace, vllm=bool(setup.vllm), adapter=adapted) / 1000 * shape.layers
    computing = max(moved / (gpu.bandwidth * 1e9 * pace.bandwidth), 2 * numbers * together / speed)
    token = max(computing, launch) if setup.vllm else computing + launch
    prompts = 2 * parameters.computed * setup.generated * setup.prompt_tokens / speed
    return rounds * length * token + prompts


def vllm_concurrency(parameters: Parameters, adapter: Adapter | None, shape: Shape, setup: RunSetup, gpu: Gpu) -> int:
    """Completions that vLLM's share of a GPU holds at once, at the mean length; at least one."""
    room = setup.vllm_share * gpu.memory * GIB - vllm_without_cache(parameters, adapter, shape, setup)
    return max(min(int(room / activations.cache(shape, setup, 1, mean_tokens(setup))), setup.generated), 1)


def _cache_passes(shape: Shape, setup: RunSetup) -> float:
    """How often transformers moves the cache for a token: to append (read and write), and to attend.

    With padding, sdpa and eager attention repeat keys and values for each query head: another write and read.
    """
    return 3 if setup.attention.startswith("flash") else 2 + 2 * shape.query / shape.key


def _launch_ms(setup: RunSetup, pace: Utilisation, *, vllm: bool, adapter: bool) -> float:
    if vllm:
        return pace.vllm_launch_ms + (pace.vllm_adapter_launch_ms if adapter else 0)
    return pace.launch_ms + (pace.adapter_launch_ms if adapter else 0)


def _weights_moved(parameters: Parameters, shape: Shape, setup: RunSetup) -> float:
    matrices = sum(matrix.count for matrix in parameters.matrices)
    number: float = setup.weight
    if setup.merged:
        number = MERGED_BYTES
    elif setup.vllm and value_of(setup.settings, "vllm_base_quantization") == "none":
        number = setup.compute  # also under a policy of 4-bit weights
    elif setup.settings.get("load_in_4bit"):
        number = _MOVED_IN_4_BITS
    return matrices * number + (parameters.rest + shape.vocabulary * shape.hidden) * setup.weight


def training_seconds(
    parameters: Parameters, adapter: Adapter | None, shape: Shape, setup: RunSetup, gpu: Gpu, pace: Utilisation
) -> float:
    """Seconds of one micro-batch: forward, backward, and further forward passes of GRPO.

    It is as wide as its longest completion. That is about the maximum, unless its completions have similar lengths.
    """
    completion = setup.completion_tokens * (pace.length if setup.sorted_rows else 1)
    tokens = setup.rows * (setup.prompt_tokens + completion)
    pairs = shape.layers * shape.query * (setup.prompt_tokens + completion) / 2  # attention, of which half is masked
    body = 2 * (parameters.computed + 2 * pairs) * tokens
    head = 2 * shape.vocabulary * shape.hidden * setup.rows * completion
    further = (1 if setup.settings.get("beta") else 0) + (1 if setup.replayed else 0)
    passes = (2 if adapter else 3) + (1 if setup.checkpointing else 0) + further
    head_passes = (3 if adapter else 4) + further  # TRL computes each tile of logits again in the backward pass
    arithmetic = (body * passes + head * head_passes) / (gpu.compute * 1e12 * pace.arithmetic)
    launches = 3 + (1 if setup.checkpointing else 0) + further  # a backward pass launches twice what a forward does
    return max(arithmetic, launches * shape.layers * _launch_ms(setup, pace, vllm=False, adapter=setup.peft) / 1000)
