"""Estimate the memory of one GPU by part, at three moments: generating, training, updating. And while it is loaded.

Each part lists its moments; the largest sum is the estimate. ZeRO: arXiv:1910.02054, section 3 (its 2 + 2 + K bytes a
parameter, K = 12 for Adam with 16-bit weights), with DeepSpeed's default bucket sizes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rlvr.config import schema
from rlvr.config.recipe import value_of
from rlvr.estimates import activations
from rlvr.estimates.parameters import Adapter, Parameters, Shape, bytes_in_4_bits
from rlvr.estimates.run_setup import RunSetup

GIB = 2**30
MOMENTS = ("generating", "training", "updating")
LOADING = "loading"
ALWAYS = frozenset(MOMENTS)
BACKWARD = frozenset({"training", "updating"})
TRAINING, GENERATING = frozenset({"training"}), frozenset({"generating"})

# DeepSpeed's defaults (deepspeed/runtime/zero/config.py), in numbers. accelerate doesn't change them.
BUCKET = 500_000_000
LIVE = 1_000_000_000

# An allowance, not a calculation: CUDA's context, cuBLAS's workspaces and the kernels' code take about 1 GiB, NCCL's
# buffers another one, and PyTorch's allocator can't use every gap between blocks.
CONTEXT, NCCL, GAPS = 1.0 * GIB, 1.0 * GIB, 0.05

MERGED_BYTES = 2  # of a number of the copy that rlvr/training/merged_rollouts.py makes on a GPU

USABLE = 0.9  # of a GPU: an estimate may be off by a tenth

# vLLM has room for so many completions at once, at the mean length, as a share of the maximum. Fewer waste the GPU.
MIN_VLLM_COMPLETIONS, MEAN_LENGTH = 64, 0.5
VLLM_BATCHED_TOKENS = schema.OWN["vllm_max_num_batched_tokens"][1]

# Bytes that the optimizer keeps for each trained number; None: twice the bytes of the weight (torch's AdamW keeps two
# moments of the weight's type). The 8-bit ones: bitsandbytes, two moments of a byte with a
# float32 maximum for each 256. Names: transformers/training_args.py, `OptimizerNames`.
_OPTIMIZERS: dict[str, float | None] = {
    "adamw_torch": None,
    "adamw_torch_fused": None,
    "adamw_torch_npu_fused": None,
    "adamw_bnb_8bit": 2 + 2 * 4 / 256,
    "adamw_8bit": 2 + 2 * 4 / 256,
    "paged_adamw_8bit": 2 + 2 * 4 / 256,
    "paged_adamw_32bit": 8.0,
    "lion_32bit": 4.0,
    "lion_8bit": 1 + 4 / 256,
    "paged_lion_32bit": 4.0,
    "paged_lion_8bit": 1 + 4 / 256,
    "sgd": 0.0,
    "rmsprop": 4.0,
    "adagrad": 4.0,
    "adafactor": 0.0,
}


@dataclass(frozen=True)
class MemoryPart:
    """A part of a GPU's memory: bytes, and the moments at which it exists."""

    name: str
    bytes: float
    moments: frozenset[str] = ALWAYS


@dataclass(frozen=True)
class GpuMemory:
    """Memory of one GPU, and offloaded memory."""

    parts: tuple[MemoryPart, ...]  # of the GPU, in the order of the output
    offloaded: float  # bytes a process in the machine's memory (ZeRO's offloading), else 0
    vllm_needs: float  # bytes that vLLM's share must have, else 0

    def at(self, moment: str) -> float:
        """Bytes at one of the `MOMENTS`, or while the model is loaded."""
        return sum(part.bytes for part in self.parts if moment in part.moments)

    @property
    def fullest(self) -> str:
        return max((*MOMENTS, LOADING), key=self.at)

    @property
    def peak(self) -> float:
        """Bytes at the moment with the largest sum."""
        return self.at(self.fullest)


def memory(
    parameters: Parameters, adapter: Adapter | None, shape: Shape, setup: RunSetup, *, gpu_memory: float
) -> GpuMemory:
    """Estimate the memory of a run on one GPU.

    Args:
        adapter: None for full fine-tuning.
        gpu_memory: bytes of the GPU, of which vLLM reserves a share.
    """
    trained = adapter.count if adapter else parameters.total
    passing = activations.passing(shape, setup) + _unpacked(parameters, setup)
    logits = activations.scoring(shape, setup, head_trains=adapter is None)
    parts = [
        # They are quantised on the GPU; otherwise loading takes no more than what stays.
        MemoryPart(
            "weights (loading)", parameters.total * setup.loaded if setup.quantised else 0, frozenset({LOADING})
        ),
        MemoryPart("weights", base_weights(parameters, setup)),
        MemoryPart("adapter", adapter.count * adapter_bytes(setup) / setup.shards_weights if adapter else 0),
        MemoryPart("optimizer", optimizer(trained, setup)),
        MemoryPart("reference model", reference(parameters, setup)),
        MemoryPart("gradients", *_gradients(trained, setup)),
        *_bucket(setup),
        MemoryPart("16-bit copies of weights", *_copies(parameters, adapter, setup)),
        *_gathered(parameters, adapter, shape, setup),
        MemoryPart("activations", activations.kept(shape, setup, adapter), TRAINING),
        MemoryPart("temporary tensors (training)", passing, TRAINING),
        MemoryPart("logits and their gradients", logits, TRAINING),
        *_generation(parameters, adapter, shape, setup, gpu_memory),
        MemoryPart("temporary tensors (updating)", _update_tensors(trained, setup), frozenset({"updating"})),
    ]
    parts = [part for part in parts if part.bytes > 0]
    needs = _vllm_needs(parameters, adapter, shape, setup) if setup.vllm == "colocate" else 0.0
    return GpuMemory((*parts, *_allowance(parts, setup)), _offloaded(trained, setup), needs)


def base_weights(parameters: Parameters, setup: RunSetup) -> float:
    """Bytes of the base model's weights on one GPU.

    Only matrices are quantised; embeddings, norms and biases keep their type. The scales of quantised matrices are no
    parameters, so they are not sharded. FSDP2 makes trained weights float32 (accelerate/utils/fsdp_utils.py).
    """
    number = 4 if setup.fsdp and setup.sixteen and not setup.peft else setup.weight
    sharded, scales = _weights(parameters, setup, number)
    return sharded / setup.shards_weights + scales


def _weights(parameters: Parameters, setup: RunSetup, number: int) -> tuple[float, float]:
    """Bytes of the whole base model, with that many a number unless quantised: without the scales, and the scales."""
    if not setup.quantised:
        return parameters.total * number, 0
    packed, scales = bytes_in_4_bits(parameters, nested=bool(setup.settings.get("use_bnb_nested_quant")))
    return packed + (parameters.embeddings + parameters.rest) * setup.weight, scales


def adapter_bytes(setup: RunSetup) -> int:
    """Bytes of a number of the adapter: 4, as PEFT and rlvr.training.train create it; 2 under DeepSpeed."""
    return 2 if setup.deepspeed and setup.sixteen else 4


def _trained_bytes(setup: RunSetup) -> int:
    if setup.peft:
        return adapter_bytes(setup)
    return 4 if setup.fsdp and setup.sixteen else setup.weight


def optimizer(trained: int, setup: RunSetup) -> float:
    """Bytes of the optimizer's states on one GPU, with DeepSpeed's float32 master weights.

    They are sharded from ZeRO's stage 1 on, and by FSDP2. Unknown optimizers count as Adam with float32 moments.
    """
    if setup.offloads:
        return 0.0
    states = _OPTIMIZERS.get(setup.optimizer, 8.0)
    if states is None:
        states = 8.0 if setup.deepspeed else 2 * _trained_bytes(setup)
    if setup.deepspeed and setup.sixteen:
        states += 4  # master weights
    return trained * states / (setup.processes if setup.stage >= 1 or setup.fsdp else 1)


def reference(parameters: Parameters, setup: RunSetup) -> float:
    """Bytes of the reference model of the KL penalty; 0 with an adapter, which TRL disables instead."""
    if setup.peft or not setup.settings.get("beta"):
        return 0.0
    return parameters.total * setup.weight / setup.shards_weights


def _gradients(trained: int, setup: RunSetup) -> tuple[float, frozenset[str]]:
    """Bytes and moments of the gradients. They exist also while generating if a generation interrupts an accumulation.

    DDP adds its buckets (`gradient_as_bucket_view` is off in accelerate). From stage 2 on DeepSpeed keeps only a share
    of all gradients; offloading moves that share away.
    """
    moments = ALWAYS if setup.mid_update else BACKWARD
    number = _trained_bytes(setup)
    if setup.deepspeed:
        share = 0.0 if setup.offloads else trained * number / (setup.processes if setup.stage >= 2 else 1)
        return share, moments
    if setup.fsdp:
        return trained * number / setup.processes, moments
    return trained * number * (2 if setup.launcher == "ddp" else 1), moments


def _bucket(setup: RunSetup) -> Iterable[MemoryPart]:
    """DeepSpeed's bucket, of full size even for an adapter: stage 3 keeps it, the others make it for each backward."""
    if setup.deepspeed:
        moments = ALWAYS if setup.stage == 3 else BACKWARD
        yield MemoryPart("bucket of gradients", BUCKET * _trained_bytes(setup), moments)


def _copies(parameters: Parameters, adapter: Adapter | None, setup: RunSetup) -> tuple[float, frozenset[str]]:
    """Autocast's copies of trained float32 weights, which it keeps until the end of a forward pass."""
    if not setup.autocast or setup.fsdp or _trained_bytes(setup) <= setup.compute:
        return 0.0, ALWAYS
    if adapter is not None:
        # Autocast wraps the forward of the whole model; generation with an adapter bypasses it.
        return adapter.count * setup.compute, TRAINING
    numbers = sum(matrix.count for matrix in parameters.matrices)
    return numbers * setup.compute, TRAINING if setup.vllm else TRAINING | GENERATING


def _gathered(parameters: Parameters, adapter: Adapter | None, shape: Shape, setup: RunSetup) -> Iterable[MemoryPart]:
    """Sharded weights that are gathered temporarily.

    With `ds3_gather_for_generation` (the default), ZeRO-3 gathers all weights to generate; else, and while training, at
    most a billion numbers at once. It gathers beside the process's own shard, also where that is everything. FSDP2
    gathers two blocks (it prefetches one) and the embeddings.
    """
    if setup.stage != 3 and not setup.fsdp:
        return
    packed = sum(matrix.count for matrix in parameters.matrices)
    whole = _weights(parameters, setup, setup.weight)[0] + (adapter.count * adapter_bytes(setup) if adapter else 0)
    if setup.fsdp:
        kept = packed / shape.layers * 2 + parameters.embeddings
        others = 1 - 1 / setup.processes  # without the process's own shard
        yield MemoryPart("gathered weights", whole * min(kept / parameters.total, 1) * others)
        return
    live = whole * min(LIVE / parameters.total, 1)
    gathers = bool(value_of(setup.settings, "ds3_gather_for_generation")) and not setup.vllm and not setup.merged
    yield MemoryPart("gathered weights", whole if gathers else live, GENERATING)
    yield MemoryPart("gathered weights (training)", live, TRAINING)


def _unpacked(parameters: Parameters, setup: RunSetup) -> float:
    """The largest quantised matrix, dequantised for a multiplication."""
    if not setup.quantised:
        return 0.0
    return max((matrix.count for matrix in parameters.matrices), default=0) * setup.compute


def _generation(
    parameters: Parameters, adapter: Adapter | None, shape: Shape, setup: RunSetup, gpu_memory: float
) -> Iterable[MemoryPart]:
    if setup.vllm == "server":
        return
    if setup.vllm:
        asleep = bool(setup.settings.get("vllm_enable_sleep_mode"))
        taken = max(setup.vllm_share * gpu_memory, _vllm_needs(parameters, adapter, shape, setup))
        yield MemoryPart("vLLM's share", taken, GENERATING if asleep else ALWAYS)
        return
    yield MemoryPart("KV cache", activations.cache(shape, setup), GENERATING)
    plain = adapter is None or setup.merged
    prefill = activations.prefill(shape, setup, 0 if plain else adapter_bytes(setup))
    largest = max(prefill, activations.decoding(shape, setup))  # the prefill ends before decoding starts
    unpacked = 0.0 if setup.merged else _unpacked(parameters, setup)
    yield MemoryPart("temporary tensors (generating)", largest + unpacked, GENERATING)
    if setup.merged:  # while generating; its largest matrix is added in float32
        matrix = max((matrix.count for matrix in parameters.matrices), default=0)
        scores = setup.at_once * shape.vocabulary * 4  # of the token before, to look up what was sampled
        yield MemoryPart("merged copy", parameters.total * MERGED_BYTES + max(8 * matrix, scores), GENERATING)


def _vllm_needs(parameters: Parameters, adapter: Adapter | None, shape: Shape, setup: RunSetup) -> float:
    """Bytes that vLLM needs: what it holds without a cache, and a cache for 64 completions, or for all if fewer.

    Prompts and completions have half of the maximum length. One of the maximum length must fit, too.
    """
    together = activations.cache(shape, setup, min(setup.generated, MIN_VLLM_COMPLETIONS), mean_tokens(setup))
    return vllm_without_cache(parameters, adapter, shape, setup) + max(together, activations.cache(shape, setup, 1))


def mean_tokens(setup: RunSetup) -> float:
    """Tokens of a prompt and its completion, of mean length."""
    return MEAN_LENGTH * (setup.prompt_tokens + setup.completion_tokens)


def vllm_without_cache(parameters: Parameters, adapter: Adapter | None, shape: Shape, setup: RunSetup) -> float:
    """Bytes of vLLM's base, of a slot for an adapter, and of the tensors of a batch of tokens.

    The base of a 4-bit policy is in 16 bits, unless vLLM quantises it. vLLM wraps every matrix for the adapter, and
    rounds its rank up to a power of two. The tensors: the gate, the up projection and their product, four hidden
    states, and the logits of one token for each completion, with their float32 copy.
    """
    base: float = parameters.total * setup.compute
    if value_of(setup.settings, "vllm_base_quantization") != "none":
        packed, scales = bytes_in_4_bits(parameters, nested=False)
        base = packed + scales + (parameters.embeddings + parameters.rest) * setup.compute
    slot = 0
    if adapter is not None and setup.settings.get("vllm_weight_sync") != "merged":
        rank = 1 << (max(adapter.rank, 8) - 1).bit_length()
        slot = rank * sum(matrix.inputs + matrix.outputs for matrix in parameters.matrices) * setup.compute
    tokens = int(setup.settings.get("vllm_max_num_batched_tokens") or VLLM_BATCHED_TOKENS)
    batch = tokens * (3 * shape.intermediate + 4 * shape.hidden) * setup.compute
    logits = setup.generated * shape.vocabulary * (setup.compute + 4)
    return base + slot + batch + logits + CONTEXT


def _update_tensors(trained: int, setup: RunSetup) -> float:
    """Temporary tensors of an update: float32 gradients of DeepSpeed's shard, square roots in torch's foreach."""
    if setup.offloads:
        return 0.0
    if setup.deepspeed:
        return trained * 4 / setup.processes if setup.sixteen else 0.0
    if setup.optimizer == "adamw_torch":
        return trained * _trained_bytes(setup) / (setup.processes if setup.fsdp else 1)
    return 0.0


def _allowance(parts: Iterable[MemoryPart], setup: RunSetup) -> Iterable[MemoryPart]:
    """CUDA's context, NCCL, and 5 % of the memory of PyTorch's allocator at each moment."""
    context = CONTEXT + (NCCL if setup.processes > 1 else 0)
    yield MemoryPart("CUDA, NCCL", context, ALWAYS | {LOADING})
    allocated = [part for part in parts if part.name != "vLLM's share"]
    for moment in (*MOMENTS, LOADING):
        held = sum(part.bytes for part in allocated if moment in part.moments)
        yield MemoryPart(f"gaps between blocks ({moment})", GAPS * held, frozenset({moment}))


def _offloaded(trained: int, setup: RunSetup) -> float:
    """Bytes a process in the machine's memory: master weights, two moments and gradients, all float32.

    ZeRO-Offload: arXiv:2101.06840, section 4.
    """
    return trained * 16 / setup.processes if setup.offloads else 0.0
