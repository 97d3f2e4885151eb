"""Memory of one GPU by part, at the three moments when it is fullest: generating, training, updating.

A part says at which moments it is there, and the estimate is the fullest moment. ZeRO: arXiv:1910.02054, section 3 (its
2 + 2 + K bytes a parameter, K = 12 for Adam with 16-bit weights), with DeepSpeed's default bucket sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rlvr.estimates import activations
from rlvr.estimates.parameters import Adapter, Parameters, Shape, bytes_in_4_bits, bytes_in_8_bits
from rlvr.estimates.setup import Setup

GIB = 2**30
MOMENTS = ("generating", "training", "updating")
ALWAYS = frozenset(MOMENTS)
BACKWARD = frozenset({"training", "updating"})

# DeepSpeed's defaults (deepspeed/runtime/zero/config.py), in numbers, which accelerate leaves as they are.
BUCKET = 500_000_000
LIVE = 1_000_000_000

# An allowance, not a calculation: CUDA's context, cuBLAS's workspaces and kernels' code take about a GiB, NCCL's
# buffers another, and PyTorch's allocator can't use every gap between blocks.
CONTEXT, NCCL, GAPS = 1.0 * GIB, 1.0 * GIB, 0.05

# Bytes a trained number that the optimizer keeps, by the end of its name; None for twice the bytes of the weight itself
# (torch's AdamW keeps two moments of the weight's own type). The 8-bit ones: bitsandbytes, two moments of a byte with a
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
class Part:
    """A part of a GPU's memory: bytes, the moments at which it is there, and whether it is an allowance only."""

    name: str
    bytes: float
    moments: frozenset[str] = ALWAYS


@dataclass(frozen=True)
class Memory:
    """What one GPU holds, and what the machine's own memory holds for all of its GPUs.

    Attributes:
        parts: of the GPU, in the order in which they are shown.
        offloaded: bytes a process in the machine's own memory (ZeRO's offloading); 0 elsewhere.
    """

    parts: tuple[Part, ...]
    offloaded: float

    def at(self, moment: str) -> float:
        """Bytes at one of the `MOMENTS`."""
        return sum(part.bytes for part in self.parts if moment in part.moments)

    @property
    def fullest(self) -> str:
        return max(MOMENTS, key=self.at)

    @property
    def peak(self) -> float:
        """Bytes at the fullest moment."""
        return self.at(self.fullest)

    def bytes_of(self, name: str) -> float:
        """Bytes of a part; 0 if there is none of this name."""
        return sum(part.bytes for part in self.parts if part.name == name)


def memory(
    parameters: Parameters, adapter: Adapter | None, shape: Shape, setup: Setup, *, gpu_memory: float | None = None
) -> Memory:
    """What a run takes on one GPU.

    Args:
        adapter: None for full fine-tuning.
        gpu_memory: bytes of the GPU, of which vLLM takes its share beforehand.
    """
    trained = adapter.count if adapter else parameters.total
    parts = [
        Part("weights", base_weights(parameters, setup)),
        Part("adapter", adapter.count * adapter_bytes(setup) / setup.shards_weights if adapter else 0),
        Part("optimizer", optimizer(trained, setup)),
        Part("reference model", reference(parameters, setup)),
        Part("gradients", *_gradients(trained, setup)),
        Part("16-bit copies of weights", *_copies(parameters, adapter, setup)),
        *_gathered(parameters, adapter, shape, setup),
        Part("activations", activations.kept(shape, setup, adapter), frozenset({"training"})),
        Part(
            "passing tensors",
            activations.passing(shape, setup) + _unpacked(parameters, setup),
            frozenset({"training"}),
        ),
        Part(
            "logits and their gradients",
            activations.scoring(shape, setup, head_trains=adapter is None),
            frozenset({"training"}),
        ),
        *_generation(parameters, adapter, shape, setup, gpu_memory),
        Part("the optimizer's own tensors", _stepping(trained, setup), frozenset({"updating"})),
    ]
    parts = [part for part in parts if part.bytes > 0]
    return Memory((*parts, *_allowance(parts, setup)), _offloaded(trained, setup))


def base_weights(parameters: Parameters, setup: Setup) -> float:
    """Bytes of the model's own weights on one GPU.

    In 4 or 8 bits: the matrices only; embeddings, norms and biases keep their type. The scales of quantised matrices
    are no parameters, so nothing shards them. FSDP2 makes trained weights float32 (accelerate/utils/fsdp_utils.py).
    """
    if setup.settings.get("load_in_4bit"):
        packed, scales = bytes_in_4_bits(parameters, nested=bool(setup.settings.get("use_bnb_nested_quant")))
    elif setup.settings.get("load_in_8bit"):
        packed, scales = bytes_in_8_bits(parameters)
    else:
        number = 4 if setup.fsdp and setup.sixteen and not setup.peft else setup.weight
        return parameters.total * number / setup.shards_weights
    return (packed + (parameters.embeddings + parameters.rest) * setup.weight) / setup.shards_weights + scales


def adapter_bytes(setup: Setup) -> int:
    """Bytes of a number of the adapter: float32, as PEFT and rlvr.training.train make it, but under DeepSpeed 16
    bits."""
    return 2 if setup.deepspeed and setup.sixteen else 4


def _trained_bytes(setup: Setup) -> int:
    if setup.peft:
        return adapter_bytes(setup)
    return 4 if setup.fsdp and setup.sixteen else setup.weight


def optimizer(trained: int, setup: Setup) -> float:
    """Bytes of the optimizer's states on one GPU, with DeepSpeed's float32 masters where it keeps them.

    Sharded from ZeRO's stage 1 on, and by FSDP2. Unknown optimizers count as Adam with float32 moments.
    """
    if setup.offloads:
        return 0.0
    states = _OPTIMIZERS.get(setup.optimizer, 8.0)
    if states is None:
        states = 8.0 if setup.deepspeed else 2 * _trained_bytes(setup)
    if setup.deepspeed and setup.sixteen:
        states += 4  # the masters
    return trained * states / (setup.processes if setup.stage >= 1 or setup.fsdp else 1)


def reference(parameters: Parameters, setup: Setup) -> float:
    """Bytes of the reference model of the KL penalty: none with an adapter, which can be switched off."""
    if setup.peft or not setup.settings.get("beta"):
        return 0.0
    return parameters.total * setup.weight / setup.shards_weights


def _gradients(trained: int, setup: Setup) -> tuple[float, frozenset[str]]:
    """Bytes of the gradients, and when they are there; also between updates, if those are cut by generations.

    DDP keeps its buckets beside them (`gradient_as_bucket_view` is off in accelerate). DeepSpeed reduces buckets of
    half a billion numbers, and from stage 2 on keeps a share of the whole; offloading takes that share away.
    """
    moments = ALWAYS if setup.mid_update else BACKWARD
    number = _trained_bytes(setup)
    if setup.deepspeed:
        share = 0.0 if setup.offloads else trained * number / (setup.processes if setup.stage >= 2 else 1)
        return share + min(trained, BUCKET) * number, moments
    if setup.fsdp:
        return trained * number / setup.processes, moments
    return trained * number * (2 if setup.launcher == "ddp" else 1), moments


def _copies(parameters: Parameters, adapter: Adapter | None, setup: Setup) -> tuple[float, frozenset[str]]:
    """Autocast's copies of float32 weights that are trained, which it keeps to the end of a forward pass."""
    if not setup.autocast or setup.fsdp or _trained_bytes(setup) <= setup.compute:
        return 0.0, ALWAYS
    if adapter is not None:
        # Generation with an adapter goes around autocast, which wraps the forward of the whole.
        return adapter.count * setup.compute, frozenset({"training"})
    numbers = sum(matrix.count for matrix in parameters.matrices)
    return numbers * setup.compute, frozenset({"training"} if setup.vllm else {"training", "generating"})


def _gathered(parameters: Parameters, adapter: Adapter | None, shape: Shape, setup: Setup) -> Iterable[Part]:
    """Weights that are whole for a moment where they are otherwise sharded.

    ZeRO-3 gathers all of them to generate, if `ds3_gather_for_generation` is on as it is by default; else, and while
    training, at most a billion numbers at once. FSDP2 gathers two blocks (one is fetched ahead) and the embeddings.
    """
    if setup.shards_weights == 1:
        return
    single = 1 - 1 / setup.processes  # its own share is there already
    packed = sum(matrix.count for matrix in parameters.matrices)
    whole = base_weights(parameters, _unsharded(setup)) - _scales(parameters, setup)
    whole += adapter.count * adapter_bytes(setup) if adapter else 0
    if setup.fsdp:
        kept = packed / shape.layers * 2 + parameters.embeddings
        yield Part("gathered weights", whole * min(kept / parameters.total, 1) * single)
        return
    live = whole * min(LIVE / parameters.total, 1) * single
    gathers = bool(setup.settings.get("ds3_gather_for_generation", True)) and not setup.vllm
    yield Part("gathered weights", whole * single if gathers else live, frozenset({"generating"}))
    yield Part("gathered weights (training)", live, frozenset({"training"}))


def _unsharded(setup: Setup) -> Setup:
    from dataclasses import replace

    return replace(setup, launcher="zero2" if setup.deepspeed else "python")


def _scales(parameters: Parameters, setup: Setup) -> float:
    if setup.settings.get("load_in_4bit"):
        return bytes_in_4_bits(parameters, nested=bool(setup.settings.get("use_bnb_nested_quant")))[1]
    return bytes_in_8_bits(parameters)[1] if setup.settings.get("load_in_8bit") else 0.0


def _unpacked(parameters: Parameters, setup: Setup) -> float:
    """The largest quantised matrix as it is while something is multiplied with it."""
    if not setup.quantised:
        return 0.0
    return max((matrix.count for matrix in parameters.matrices), default=0) * setup.compute


def _generation(
    parameters: Parameters, adapter: Adapter | None, shape: Shape, setup: Setup, gpu_memory: float | None
) -> Iterable[Part]:
    generating = frozenset({"generating"})
    if setup.vllm == "server":
        return
    if setup.vllm:
        share = float(setup.settings.get("vllm_gpu_memory_utilization") or 0.3)
        asleep = bool(setup.settings.get("vllm_enable_sleep_mode"))
        # Without a GPU to take a share of, what vLLM can't do without: weights and the cache.
        least = parameters.total * setup.compute + activations.cache(shape, setup)
        yield Part("vLLM's share", share * gpu_memory if gpu_memory else least, generating if asleep else ALWAYS)
        return
    yield Part("KV cache", activations.cache(shape, setup), generating)
    prefill = activations.prefill(shape, setup, adapter_bytes(setup) if adapter else 0)
    # Prompts are read before the first token is added: never both.
    yield Part(
        "generation's own tensors",
        max(prefill, activations.decoding(shape, setup)) + _unpacked(parameters, setup),
        generating,
    )


def _stepping(trained: int, setup: Setup) -> float:
    """What an update needs for a moment: float32 gradients of DeepSpeed's share, square roots in torch's foreach."""
    if setup.offloads:
        return 0.0
    if setup.deepspeed:
        return trained * 4 / setup.processes if setup.sixteen else 0.0
    if setup.optimizer == "adamw_torch":
        return trained * _trained_bytes(setup) / (setup.processes if setup.fsdp else 1)
    return 0.0


def _allowance(parts: Iterable[Part], setup: Setup) -> Iterable[Part]:
    """The context, NCCL, and 5 % of what PyTorch's allocator holds at each moment."""
    context = CONTEXT + (NCCL if setup.processes > 1 else 0)
    yield Part("CUDA, NCCL", context)
    own = [part for part in parts if part.name != "vLLM's share"]
    for moment in MOMENTS:
        held = sum(part.bytes for part in own if moment in part.moments)
        yield Part(f"gaps between blocks ({moment})", GAPS * held, frozenset({moment}))


def _offloaded(trained: int, setup: Setup) -> float:
    """Bytes a process in the machine's memory: masters, two moments and gradients, all float32 (ZeRO-Offload,
    arXiv:2101.06840, section 4)."""
    return trained * 16 / setup.processes if setup.offloads else 0.0


def gib(number: float) -> float:
    """Bytes as GiB."""
    return number / GIB if math.isfinite(number) else number
