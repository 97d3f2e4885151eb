"""Rollouts by vLLM in the training process or on a server, with the adapter alone sent to it.

TRL merges an adapter into the weights and sends all of them to vLLM after each update, which 4-bit weights can't do
(huggingface/trl#4973). Here vLLM keeps the base, and gets the adapter: megabytes instead of gigabytes. A base that is
trained in 4 bits is sent once, as the 16-bit numbers that training computes with, so that vLLM samples from the policy
and not from the unquantised model.

TRL's class is constructed by its trainer, which has no seam for another one. Therefore the trainer is built without
vLLM (`TrlSeam.generate_with` turns it on). Can go when TRL sends adapters: huggingface/trl#5975.

A server reads the adapter from a folder: /dev/shm if it runs on this host, otherwise the run directory, which both
hosts must see. It keeps the base that it was started with, so with 4-bit weights it samples from the unquantised model.
Merged weights to a server are left to TRL.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import torch
from peft import get_peft_model_state_dict
from safetensors.torch import save_file
from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer.utils import ensure_master_addr_port

from rlvr.config.recipe import value_of
from rlvr.errors import InputError
from rlvr.modeling.vllm_engines import end_engine, room_for_rank, sends_adapter
from rlvr.training.rollout_check import compute_type
from rlvr.training.trl_seam import TrlSeam
from rlvr.training.whole_weights import dequantised, plain_name, quantisation, whole

SHARED_MEMORY = Path("/dev/shm")
THIS_HOST = ("localhost", "127.0.0.1", "0.0.0.0", "::1", socket.gethostname())
LOAD_TIMEOUT_S = 120.0  # for a server to load an adapter


class VllmRollouts(VLLMGeneration):
    """`VLLMGeneration` with a data type of its own and adapters as LoRA requests. To start it is collective.

    Args:
        trainer: gives the arguments that TRL would pass.
        settings: the recipe's flat keys, ours with their defaults.
    """

    def __init__(self, trainer: TrlSeam, settings: Mapping[str, Any]) -> None:
        args = trainer.args
        # Of weights and cache. TRL leaves it to vLLM, which takes bfloat16 for a float32 model.
        self.dtype = compute_type(trainer)
        self.adapter_only = sends_adapter(settings)  # otherwise all weights are sent, as TRL does
        self.base_quantization = settings["vllm_base_quantization"]
        self.max_num_batched_tokens = settings["vllm_max_num_batched_tokens"]  # TRL has 4,096
        self.revision = value_of(settings, "model_revision")  # which TRL doesn't pass on
        self.run_dir = Path(args.output_dir)  # for a server on another host, which reads adapters there
        self.sent_bytes = 0  # by the last synchronisation, to one engine
        self._adapters = 0
        super().__init__(
            model=trainer.model,
            accelerator=trainer.accelerator,
            processing_class=trainer.processing_class,
            mode=args.vllm_mode,
            structured_outputs_regex=args.vllm_structured_outputs_regex,
            server_base_url=args.vllm_server_base_url,
            server_host=args.vllm_server_host,
            server_port=args.vllm_server_port,
            server_timeout=args.vllm_server_timeout,
            group_port=args.vllm_group_port,
            tensor_parallel_size=args.vllm_tensor_parallel_size,
            gpu_memory_utilization=args.vllm_gpu_memory_utilization,
            max_model_length=args.vllm_max_model_length,
            max_num_seqs=args.per_device_train_batch_size * args.vllm_tensor_parallel_size * args.steps_per_generation,
            enable_sleep_mode=args.vllm_enable_sleep_mode,
            model_impl=args.vllm_model_impl,
            trust_remote_code=args.trust_remote_code,
            repetition_penalty=args.repetition_penalty,
            temperature=args.temperature,
            top_p=args.top_p,
            top_k=args.top_k,
            min_p=args.min_p,
            max_completion_length=args.max_completion_length,
            generation_kwargs=args.generation_kwargs,
        )

    def _init_vllm(self) -> None:
        if self.mode == "server":
            self._connect()
        else:
            try:
                self._start_engine()
            except Exception as error:  # vLLM has no class of its own for what it can't do
                cause = " ".join(str(error).split()).rstrip(".")
                raise InputError(
                    f"vLLM can't generate with {self.model.name_or_path}: {cause}. Change "
                    "vllm_gpu_memory_utilization or vllm_max_model_length if it is about memory, else set "
                    "use_vllm: false.",
                    kind="vllm-failed",
                    key="use_vllm",
                ) from error
        self.accelerator.wait_for_everyone()

    def _connect(self) -> None:
        """Connect the main process to the server, which rlvr/preflight/vllm_server.py has checked."""
        if self.accelerator.is_main_process:
            url = self.server_base_url or f"http://{self.server_host}:{self.server_port}"
            self.vllm_client = VLLMClient(base_url=url, connection_timeout=self.server_timeout)
            self._server = _ServerWithAdapter(self.vllm_client)

    def _start_engine(self) -> None:
        from vllm import LLM, SamplingParams  # type: ignore[import-not-found,unused-ignore]

        accelerator, size = self.accelerator, self.tensor_parallel_size
        if size > 1:
            groups = [list(range(first, first + size)) for first in range(0, accelerator.num_processes, size)]
            self.tp_group, _ = torch.distributed.new_subgroups_by_enumeration(groups)
        # `external_launcher` reads these: the training processes are vLLM's workers.
        if "MASTER_PORT" not in os.environ:  # TRL would take 29500 for each of two runs that start at once
            with socket.socket() as free:
                free.bind(("", 0))
                os.environ["MASTER_PORT"] = str(free.getsockname()[1])
        os.environ["RANK"] = str(accelerator.process_index)
        os.environ["LOCAL_RANK"] = str(accelerator.local_process_index)
        os.environ["WORLD_SIZE"] = str(accelerator.num_processes)
        ensure_master_addr_port()
        options: dict[str, Any] = {}
        if self.adapter_only:
            rank = max(config.r for config in self.model.peft_config.values())
            options = {"enable_lora": True, "max_loras": 1, "max_lora_rank": room_for_rank(rank)}
        if self.base_quantization != "none":
            options["quantization"] = self.base_quantization
        engine = LLM(
            model=self.model.name_or_path,
            revision=self.revision,
            dtype=self.dtype,
            tensor_parallel_size=size,
            gpu_memory_utilization=self.gpu_memory_utilization,
            max_model_len=self.max_model_length,
            max_num_seqs=self.max_num_seqs,
            enable_sleep_mode=self.enable_sleep_mode,
            model_impl=self.model_impl,
            distributed_executor_backend="external_launcher",
            seed=accelerator.process_index // size,  # the same for the processes that share a model
            max_num_batched_tokens=self.max_num_batched_tokens,
            logprobs_mode="processed_logprobs",  # after temperature: what the importance sampling correction needs
            trust_remote_code=self.trust_remote_code,
            **options,
        )
        self.llm = _EngineWithAdapter(engine)
        if self.adapter_only and self.base_quantization == "none":
            self._send_quantised_base()
        # Some of what vLLM can't do, such as a size of the attention heads, it reports at the first token.
        first = SamplingParams(max_tokens=1, temperature=0)
        self.llm.generate([{"prompt_token_ids": [0]}], sampling_params=first, use_tqdm=False)
        if self.enable_sleep_mode:
            self.llm.sleep(level=2)
        self._llm_weights_sleeping = self.enable_sleep_mode

    def sync_weights(self) -> None:
        if not self.adapter_only:
            super().sync_weights()
            return
        tensors = self._adapter_tensors()
        self.sent_bytes = sum(tensor.nbytes for tensor in tensors.values())
        if self.mode == "server" and not self.accelerator.is_main_process:
            return
        engine = self._server if self.mode == "server" else self.llm
        folder = Path(tempfile.mkdtemp(prefix="grpo-adapter-", dir=self._exchange_folder()))
        try:
            if self.mode == "server":
                folder.chmod(0o755)  # it may run as another user
            save_file(tensors, folder / "adapter_model.safetensors")
            self.model.peft_config[self.model.active_adapter].save_pretrained(str(folder))
            self._adapters += 1
            engine.use_adapter(self._adapters, folder)
        finally:
            shutil.rmtree(folder)

    def close(self) -> None:
        """End vLLM's engine, so that its memory is free for the evaluation after training; a server runs on."""
        if self.mode == "colocate":
            end_engine(self.llm)
            del self.llm
        elif self.accelerator.is_main_process:
            self._server.drop_adapter()

    def _exchange_folder(self) -> Path | None:
        """Where adapters lie while vLLM loads them; None for the folder of temporary files."""
        if self.mode == "server" and urlsplit(self.vllm_client.base_url).hostname not in THIS_HOST:
            return self.run_dir
        return SHARED_MEMORY if SHARED_MEMORY.is_dir() else None

    def _adapter_tensors(self) -> dict[str, torch.Tensor]:
        """The adapter under its names in a file of PEFT; collective where the weights are sharded."""
        model = self.model
        own = {name: parameter for name, parameter in model.named_parameters() if model.prefix in name}
        with self._dist.gather_params(list(own.values())):
            tensors = {
                name.replace("_checkpoint_wrapped_module.", ""): whole(parameter).cpu().clone()
                for name, parameter in own.items()
            }
        state: dict[str, torch.Tensor] = get_peft_model_state_dict(model, state_dict=tensors)
        return state

    def _send_quantised_base(self) -> None:
        """Replace vLLM's weights by the numbers that 4-bit weights stand for; collective where they are sharded."""
        engine = self.llm.llm_engine.model_executor.driver_worker.model_runner.model
        weights = dict(engine.named_parameters())
        fused = {
            part: (whole, part[0] if whole == "qkv_proj" else number)  # vLLM's names of the parts: q, k, v; 0, 1
            for whole, parts in engine.packed_modules_mapping.items()
            for number, part in enumerate(parts)
        }
        for name, numbers in self._dequantised():
            layer, _, part = name.rpartition(".")
            whole, *shard = fused.get(part, (part,))
            # vLLM has wrapped every linear layer, those that get no adapter too.
            weight = weights[f"{layer}.{whole}.base_layer.weight"]
            weight.weight_loader(weight, numbers, *shard)

    def _dequantised(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each 4-bit layer's name in the base model, and its weight in the engine's type."""
        from bitsandbytes import nn

        for name, module in self.model.named_modules():
            if isinstance(module, nn.Linear4bit):
                with self._dist.gather_params([module.weight]):
                    state = quantisation(module, module.weight)
                    numbers = dequantised(module.weight, state).to(getattr(torch, self.dtype))
                yield plain_name(name), numbers


class _EngineWithAdapter:
    """A `vllm.LLM` whose `generate` uses the newest adapter: TRL calls it without one."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._request: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(self, prompts: Any, **kwargs: Any) -> Any:
        return self._engine.generate(prompts, lora_request=self._request, **kwargs)

    def use_adapter(self, number: int, folder: Path) -> None:
        """Load an adapter from a folder, which is not needed afterwards, and drop the one before it."""
        from vllm.lora.request import LoRARequest  # type: ignore[import-not-found,unused-ignore]

        if self._request is not None:
            self._engine.llm_engine.remove_lora(self._request.lora_int_id)
        # A new number each time: vLLM keeps what it has loaded under a number.
        self._request = LoRARequest(f"policy-{number}", number, str(folder))
        if not self._engine.llm_engine.add_lora(self._request):
            raise RuntimeError(f"vLLM did not load the adapter {self._request.lora_name}")
        self._engine.reset_prefix_cache()


class _ServerWithAdapter:
    """A server that completes with the newest adapter: TRL's client names the model in each request."""

    def __init__(self, client: VLLMClient) -> None:
        self._client = client
        self._base = client.model
        self._prefix = f"policy-{os.urandom(4).hex()}"  # an earlier run may have left its adapter

    def use_adapter(self, number: int, folder: Path) -> None:
        """Load an adapter from a folder, which is not needed afterwards, and drop the one before it."""
        # A new name each time: vLLM's prefix cache goes by it.
        name = f"{self._prefix}-{number}"
        self._post("load", lora_name=name, lora_path=str(folder.resolve()))
        self.drop_adapter()
        self._client.model = name

    def drop_adapter(self) -> None:
        """Complete with the base alone."""
        if self._client.model != self._base:
            self._post("unload", lora_name=self._client.model)
            self._client.model = self._base

    def _post(self, action: str, **content: str) -> None:
        url = f"{self._client.base_url}/v1/{action}_lora_adapter"
        reply = httpx2.post(url, json=content, timeout=LOAD_TIMEOUT_S)
        if reply.status_code == 200:
            return
        hint = " Is the folder on a file system that the server can read?" if reply.status_code == 404 else ""
        raise RuntimeError(f"{url} failed with status {reply.status_code}: {reply.text}.{hint}")
