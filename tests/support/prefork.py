"""Import torch, TRL and DeepSpeed once, and fork from there every program that a test starts.

A tested launch is a real one: `accelerate launch` with its agent, and two ranks. Each of the three processes would
import for ten seconds and train for two; so would a script that a test starts in order to interrupt it. Instead, the
small program prefork_client.py starts in the place of each. It sends its arguments, environment, folder and output to
this server, which forks a child with them. The client forwards signals, and exits as the child exits.

This server has no other thread and no process group when it forks.

    python prefork.py SOCKET        until its standard input is closed
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import importlib.util
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
import zlib
from pathlib import Path
from typing import Any, NoReturn

REPOSITORY = Path(__file__).resolve().parents[2]


def main(path: str) -> None:
    # Threads don't survive a fork, and Arrow's allocator would start one.
    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    sys.path.insert(0, str(REPOSITORY))
    import_libraries()
    gc.collect()
    gc.freeze()  # a child's collections would walk, and so copy, all imported memory
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(16)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would leave a thread behind"
    print("ready", flush=True)

    clients: dict[int, socket.socket] = {}  # by their child's process id
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(timeout=0.02 if clients else None):
                if key.fileobj is listener:
                    client, _ = listener.accept()
                    child = fork_program(client, [listener, *clients.values()])
                    if child is None:
                        client.close()
                        continue
                    clients[child] = client
                    selector.register(client, selectors.EVENT_READ, child)
                elif key.fileobj is sys.stdin:
                    for child in clients:
                        os.kill(child, signal.SIGKILL)
                    return
                elif is_gone(key.fileobj) and key.data in clients:
                    os.kill(key.data, signal.SIGKILL)  # the client was killed, so its child is too
                    selector.unregister(key.fileobj)
            for child in list(clients):
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    client = clients.pop(child)
                    with contextlib.suppress(KeyError):  # it may have been killed
                        selector.unregister(client)
                    with contextlib.suppress(OSError):
                        client.sendall(json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode())
                    client.close()


def is_gone(client: Any) -> bool:
    """Whether a readable client has ended; one that was killed before it read its answer resets the connection."""
    try:
        return not client.recv(1)
    except ConnectionResetError:
        return True


def import_libraries() -> None:
    import deepspeed
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping
    from trl import GRPOTrainer  # noqa: F401

    from rlvr.report import svg_charts

    if importlib.util.find_spec("vllm") is not None:
        from vllm import LLM  # noqa: F401

    get_checkpoint_conversion_mapping("qwen2")  # the first one compiles a thousand patterns

    for name in (
        "artifacts.resumption",
        "evaluation",
        "training.launch",
        "modeling.loading",
        "preflight.prepare",
        "report.page",
        "tracking.mlflow_tracker",
        "training.train",
    ):
        importlib.import_module(f"rlvr.{name}")  # as run_grpo.py does later
    svg_charts.line_chart("first", [svg_charts.Series("the first chart looks for fonts", [1, 2], [0.0, 1.0])])
    deepspeed.ops.__compatible_ops__  # noqa: B018  it calls the compiler, which takes a second


def fork_program(client: socket.socket, others: list[socket.socket]) -> int | None:
    """Fork a child for a client; return its process id, or None for an empty request, which is a health check."""
    content, descriptors, *_ = socket.recv_fds(client, 1 << 20, 3)
    if not content:
        with contextlib.suppress(OSError):
            client.sendall(b"ready\n")
        return None
    child = os.fork()
    if child:
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(OSError):  # of a client that was killed: its child is, too, when the loop reads that
            client.sendall(json.dumps({"pid": child}).encode() + b"\n")
        return child
    for other in [client, *others]:
        other.close()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background inherit that it is ignored
    request = json.loads(content)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    return run_program(request["words"])


def run_program(words: list[str]) -> NoReturn:
    """Run the program in this process, and exit with its code."""
    code: Any = 1
    try:
        if words[0] == "accelerate":
            from accelerate.commands.accelerate_cli import main as program

            sys.argv = words
            code = program()
        else:
            if os.environ.get("SHARD_ON_CPUS"):
                shard_on_cpus()
            if os.environ.get("SAMPLED_BY_ROW"):
                sample_by_row()
            if os.environ.get("WITHOUT_REPORT"):
                skip_report()
            script = REPOSITORY / "run_grpo.py" if words[0] == "run_grpo" else Path(words[0])
            sys.argv = [str(script), *words[1:]]
            sys.path[0] = str(script.resolve().parent)
            sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
            runpy.run_path(str(script), run_name="__main__")
            code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.exit(code)


def skip_report() -> None:
    """Let a run end without its report, which takes as long as a few steps of the tiny model."""
    from rlvr import run

    run.write_report = lambda folder: Path(folder) / "report.html"


def sample_by_row() -> None:
    """Sample every completion from its own seed: the prompt, and how often training has sampled it before.

    A rank samples from its own seed, so one process and two would not see the same completions. By row they do,
    whichever rank a row is on. The model, its gathering and the generation loop are the real ones, a row at a time.
    """
    import torch
    from transformers import GenerationMixin, LogitsProcessor, LogitsProcessorList, Trainer

    whole_batch, whole_training = GenerationMixin.generate, Trainer.train
    counts: dict[str, int] = {}

    class EndAt(LogitsProcessor):
        """Let a row of this length end."""

        def __init__(self, length: int, token: int) -> None:
            self.length, self.token = length, token

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            if input_ids.size(1) == self.length:
                scores = torch.full_like(scores, -torch.inf)
                scores[:, self.token] = 0
            return scores

    def generate(self: Any, input_ids: Any, attention_mask: Any, **kwargs: Any) -> Any:
        state = torch.get_rng_state()
        completed, recorders = [], []
        shared = kwargs.pop("logits_processor", [])  # of a merged copy: it records the tokens of a whole batch
        for ids, mask in zip(input_ids, attention_mask, strict=True):
            prompt = ids[mask.bool()]
            words = " ".join(map(str, prompt.tolist()))
            counts[words] = counts.get(words, -1) + 1
            seed = zlib.crc32(f"{counts[words]}: {words}".encode())
            torch.manual_seed(seed)
            # Some are short.
            end = EndAt(len(prompt) + seed % kwargs["generation_config"].max_new_tokens, self.config.eos_token_id)
            recorders.append(copy.deepcopy(list(shared)))
            more = {"logits_processor": LogitsProcessorList([*recorders[-1], end][: None if seed % 2 else -1])}
            row = whole_batch(
                self, input_ids=prompt[None], attention_mask=torch.ones_like(prompt)[None], **more, **kwargs
            )
            completed.append(row[0, len(prompt) :])
        torch.set_rng_state(state)
        for number, recorder in enumerate(shared):
            parts = [own[number] for own in recorders]
            recorder.log_probabilities = functools.partial(log_probabilities, parts)
            recorder.overflowed = torch.stack([part.overflowed for part in parts]).any()
        width = max(len(row) for row in completed)
        pad = kwargs["generation_config"].pad_token_id
        padded = torch.full((len(completed), width), pad, dtype=input_ids.dtype)
        for place, row in enumerate(completed):
            padded[place, : len(row)] = row
        return torch.cat([input_ids, padded], dim=1)

    def log_probabilities(parts: Any, completions: Any, pad_token: int) -> list[list[float]]:
        return [part.log_probabilities([ids], pad_token)[0] for part, ids in zip(parts, completions, strict=True)]

    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        counts.clear()  # an evaluation may have sampled the same prompts
        return whole_training(self, *args, **kwargs)

    GenerationMixin.generate, Trainer.train = generate, train


def shard_on_cpus() -> None:
    """Make accelerate use FSDP on CPUs, where its version 1.15 uses DDP instead.

    Sharding, gathering for generation, saving and loading are the code that runs on GPUs. Each rank notes the modules
    that it shards in a file of its own (`Launch.sharded`): its output is shared with libraries that redirect theirs.
    """
    import torch.distributed.fsdp
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType

    from rlvr.training import launch

    launch.FSDP_ON_CPUS = True
    init = AcceleratorState.__init__

    def init_with_fsdp(self: Any, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
        first = not AcceleratorState._shared_state
        init(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if first and fsdp_plugin is not None:
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = init_with_fsdp
    shard = torch.distributed.fsdp.fully_shard

    notes = Path(os.environ["LAUNCH_NOTES"], f"{os.environ['RANK']}.sharded")

    def shard_and_note(module: Any, **kwargs: Any) -> Any:
        with notes.open("a") as file:
            file.write(f"{type(module).__name__}\n")
        return shard(module, **kwargs)

    torch.distributed.fsdp.fully_shard = shard_and_note


if __name__ == "__main__":
    main(sys.argv[1])
