"""GPUs and instance types: memory, speed and dollars an hour, with date and source.

Prices are Amazon SageMaker's for on-demand training in us-east-1, in dollars an hour for a whole instance. They change;
`PRICES_READ` is their date. Amazon's own price list could not be read when this table was made. The prices are those
that several public projects had copied from it between 2026-08 and 2026-09-27; all agree. Those of the P family are
also 1.15 times the EC2 prices of 2026-11-09, the ratio between both lists. Without such a price, it is None.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.config.schema import nearest
from rlvr.errors import InputError

PRICES_READ = "2026-09-27"


@dataclass(frozen=True)
class Gpu:
    """A GPU model."""

    name: str  # for the command line
    memory: float  # GiB that the driver reports (`nvidia-smi`, memory.total), which is less than the nominal size
    bandwidth: float  # GB/s between memory and processor
    compute: float  # dense bfloat16 TFLOP/s with float32 accumulation, from NVIDIA, without sparsity


@dataclass(frozen=True)
class Machine:
    """A machine for training."""

    name: str  # an instance type, or a GPU's name
    gpu: Gpu  # its GPU model
    gpus: int = 0  # number of GPUs; 0 for a single GPU, of which there are as many as processes
    host: float | None = None  # GiB of the machine's memory, or None if unknown
    price: float | None = None  # dollars an hour for the whole machine, or None if unknown

    def needed(self, processes: int) -> int:
        """Number of machines for that many processes, one GPU each."""
        return -(-processes // self.gpus) if self.gpus else 1


# Bandwidth and compute: NVIDIA's datasheets. The A10G is made for Amazon and has no public datasheet; its compute is
# the 70 TFLOP/s that Amazon's partners publish (others measured 62).
GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("A10G-24GB", 22.5, 600, 70),
        Gpu("L4-24GB", 22.5, 300, 121),
        Gpu("L40S-48GB", 45.0, 864, 362),
        Gpu("A100-40GB", 40.0, 1555, 312),
        Gpu("A100-80GB", 80.0, 2039, 312),
        Gpu("H100-80GB", 79.6, 3350, 989),
        Gpu("H200-141GB", 140.4, 4800, 989),
    )
}

_INSTANCES = (
    # instance type, GPU, number of GPUs, GiB of memory, dollars an hour
    ("ml.g5.xlarge", "A10G-24GB", 1, 16, 1.408),
    ("ml.g5.2xlarge", "A10G-24GB", 1, 32, 1.515),
    ("ml.g5.4xlarge", "A10G-24GB", 1, 64, 2.03),
    ("ml.g5.8xlarge", "A10G-24GB", 1, 128, None),
    ("ml.g5.12xlarge", "A10G-24GB", 4, 192, 7.09),
    ("ml.g5.16xlarge", "A10G-24GB", 1, 256, None),
    ("ml.g5.24xlarge", "A10G-24GB", 4, 384, None),
    ("ml.g5.48xlarge", "A10G-24GB", 8, 768, 20.36),
    ("ml.g6.xlarge", "L4-24GB", 1, 16, 1.127),
    ("ml.g6.2xlarge", "L4-24GB", 1, 32, 1.222),
    ("ml.g6.4xlarge", "L4-24GB", 1, 64, None),
    ("ml.g6.8xlarge", "L4-24GB", 1, 128, None),
    ("ml.g6.12xlarge", "L4-24GB", 4, 192, 5.752),
    ("ml.g6.16xlarge", "L4-24GB", 1, 256, None),
    ("ml.g6.24xlarge", "L4-24GB", 4, 384, None),
    ("ml.g6.48xlarge", "L4-24GB", 8, 768, 16.688),
    ("ml.g6e.xlarge", "L40S-48GB", 1, 32, 2.61),
    ("ml.g6e.2xlarge", "L40S-48GB", 1, 64, 2.80),
    ("ml.g6e.4xlarge", "L40S-48GB", 1, 128, None),
    ("ml.g6e.8xlarge", "L40S-48GB", 1, 256, None),
    ("ml.g6e.12xlarge", "L40S-48GB", 4, 384, 13.12),
    ("ml.g6e.16xlarge", "L40S-48GB", 1, 512, None),
    ("ml.g6e.24xlarge", "L40S-48GB", 4, 768, 18.83),
    ("ml.g6e.48xlarge", "L40S-48GB", 8, 1536, 37.66),
    ("ml.p4d.24xlarge", "A100-40GB", 8, 1152, 25.2513),
    ("ml.p4de.24xlarge", "A100-80GB", 8, 1152, 31.5641),
    ("ml.p5.4xlarge", "H100-80GB", 1, 256, 7.912),
    ("ml.p5.48xlarge", "H100-80GB", 8, 2048, 63.296),
    ("ml.p5e.48xlarge", "H200-141GB", 8, 2048, None),
    ("ml.p5en.48xlarge", "H200-141GB", 8, 2048, None),
)
INSTANCES = {name: Machine(name, GPUS[gpu], gpus, host, price) for name, gpu, gpus, host, price in _INSTANCES}


def find_machine(name: str) -> Machine:
    """Find an instance type or a GPU by name, regardless of case and of the prefix `ml.`.

    Raises:
        InputError: of kind "unknown-machine".
    """
    known = {key.lower(): key for key in (*INSTANCES, *GPUS)}
    for candidate in (name.lower(), f"ml.{name.lower()}"):
        if candidate in known:
            key = known[candidate]
            return INSTANCES[key] if key in INSTANCES else Machine(key, GPUS[key])
    sizes = [gpu for gpu in GPUS if gpu.lower().startswith(f"{name.lower()}-")]
    if len(sizes) == 1:
        return Machine(sizes[0], GPUS[sizes[0]])
    close = sizes or nearest(name.lower(), known, count=3) or list(GPUS)
    hint = ", ".join(known.get(one, one) for one in close)
    raise InputError(
        f"The machine {name} is unknown (rlvr/estimates/machines.py). Use one of: {hint}.",
        kind="unknown-machine",
        key="--machine",
    )


def this_machine() -> Machine | None:
    """The GPU of this process, with its real memory; None without a GPU.

    Its speed is that of the same model in the table; 0 if the table doesn't have it, so that no hours are estimated.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    device = torch.cuda.get_device_properties(0)
    memory = device.total_memory / 2**30
    words = device.name.replace("-", " ").split()
    matches = [gpu for gpu in GPUS.values() if gpu.name.split("-")[0] in words and abs(gpu.memory - memory) < 4]
    speed = matches[0] if matches else Gpu(device.name, memory, 0, 0)
    return Machine(device.name, Gpu(device.name, memory, speed.bandwidth, speed.compute))
