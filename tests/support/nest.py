"""A process that has torch, TRL and DeepSpeed imported, and forks from there whatever a test starts as a program.

A launch is a real one here: `accelerate launch` with its agent, and two ranks. Each of the three processes would import
for ten seconds and train for two; so would a script that a test starts in order to interrupt it. So a program
`stand_in.py` takes the place of each: it asks this process to fork a child with the stand-in's own arguments,
environment, folder and output, hands on signals, and ends as it ends. Nothing runs here when it forks: no other thread,
no process group.

    python nest.py SOCKET        until its standard input is closed
"""

from __future__ import annotations

import contextlib
import gc
import importlib
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
    import_what_is_slow()
    gc.collect()
    gc.freeze()  # A child's own collections would walk, and so copy, all that was imported.
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(16)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would leave a thread behind"
    print("ready", flush=True)

    waiting: dict[int, socket.socket] = {}  # stand-ins, by their child's process id
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(timeout=0.02 if waiting else None):
                if key.fileobj is listener:
                    stand_in, _ = listener.accept()
                    child = hatch(stand_in, [listener, *waiting.values()])
                    if child is None:
                        stand_in.close()
                        continue
                    waiting[child] = stand_in
                    selector.register(stand_in, selectors.EVENT_READ, child)
                elif key.fileobj is sys.stdin:
                    for child in waiting:
                        os.kill(child, signal.SIGKILL)
                    return
                elif not key.fileobj.recv(1) and key.data in waiting:  # type: ignore[union-attr]
                    os.kill(key.data, signal.SIGKILL)  # the stand-in was killed: so is what it stands for
                    selector.unregister(key.fileobj)
            for child in list(waiting):
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    stand_in = waiting.pop(child)
                    with contextlib.suppress(KeyError):  # it may have been killed before
                        selector.unregister(stand_in)
                    with contextlib.suppress(OSError):
                        stand_in.sendall(json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode())
                    stand_in.close()


def import_what_is_slow() -> None:
    import deepspeed
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping
    from trl import GRPOTrainer  # noqa: F401

    from rlvr.report import svg_charts

    get_checkpoint_conversion_mapping("qwen2")  # the first one compiles a thousand patterns

    for name in (
        "artifacts.resumption",
        "evaluation",
        "training.launch",
        "modeling.loading",
        "preflight.prepare",
        "report",
        "tracking.mlflow_tracker",
        "training.train",
    ):
        importlib.import_module(f"rlvr.{name}")  # as run_grpo.py does when it comes to it
    svg_charts.small_chart("first", svg_charts.Series("the first one looks for its fonts", [1, 2], [0.0, 1.0]))
    deepspeed.ops.__compatible_ops__  # noqa: B018  It asks the compiler, which takes a second.


def hatch(stand_in: socket.socket, others: list[socket.socket]) -> int | None:
    """Forks a child for a stand-in; returns its process id, or None for somebody who only asks whether this lives."""
    content, descriptors, *_ = socket.recv_fds(stand_in, 1 << 20, 3)
    if not content:
        with contextlib.suppress(OSError):
            stand_in.sendall(b"here\n")
        return None
    child = os.fork()
    if child:
        for descriptor in descriptors:
            os.close(descriptor)
        stand_in.sendall(json.dumps({"pid": child}).encode() + b"\n")
        return child
    for other in [stand_in, *others]:
        other.close()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    request = json.loads(content)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    return become(request["words"])


def become(words: list[str]) -> NoReturn:
    """Is the program from here on; never returns."""
    code: Any = 1
    try:
        if words[0] == "accelerate":
            from accelerate.commands.accelerate_cli import main as program

            sys.argv = words
            code = program()
        else:
            if os.environ.get("SHARD_ON_CPUS"):
                let_accelerate_shard_on_cpus()
            if os.environ.get("SAMPLED_BY_ROW"):
                sample_by_row()
            if os.environ.get("WITHOUT_REPORT"):
                leave_the_report_out()
            script = REPOSITORY / "run_grpo.py" if words[0] == "run_grpo" else Path(words[0])
            sys.argv = [str(script), *words[1:]]
            sys.path[0] = str(script.resolve().parent)
            runpy.run_path(str(script), run_name="__main__")
            code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.exit(code)


def leave_the_report_out() -> None:
    """Lets a run end without its report, which takes as long as a few steps of the tiny model."""
    from rlvr import report

    report.write_report = lambda folder: Path(folder) / "report.html"


def sample_by_row() -> None:
    """Lets every completion be sampled from a seed of its own: the prompt's, and how often it was asked before.

    A rank samples from a seed of its own, so one process and two don't see the same completions, and nothing after the
    first draw could be compared. By row they see the same, whichever rank a row is on. The model, its gathering and the
    loop of the generation are the real ones, a row at a time.
    """
    import torch
    from transformers import GenerationMixin

    whole_batch = GenerationMixin.generate
    asked: dict[str, int] = {}

    def generate(self: Any, input_ids: Any, attention_mask: Any, **kwargs: Any) -> Any:
        state = torch.get_rng_state()
        completed = []
        for ids, mask in zip(input_ids, attention_mask, strict=True):
            prompt = ids[mask.bool()]
            words = " ".join(map(str, prompt.tolist()))
            asked[words] = asked.get(words, -1) + 1
            torch.manual_seed(zlib.crc32(f"{asked[words]}: {words}".encode()))
            row = whole_batch(self, input_ids=prompt[None], attention_mask=torch.ones_like(prompt)[None], **kwargs)
            completed.append(row[0, len(prompt) :])
        torch.set_rng_state(state)
        width = max(len(row) for row in completed)
        pad = kwargs["generation_config"].pad_token_id
        padded = torch.full((len(completed), width), pad, dtype=input_ids.dtype)
        for place, row in enumerate(completed):
            padded[place, : len(row)] = row
        return torch.cat([input_ids, padded], dim=1)

    GenerationMixin.generate = generate


def let_accelerate_shard_on_cpus() -> None:
    """Makes accelerate take FSDP where it is asked for FSDP; on CPUs its version 1.15 takes DDP instead.

    All that follows, the sharding, the gathering for generation, saving and loading, is the code that runs on GPUs.
    What is sharded is printed, so that a test can see that it was.
    """
    import torch.distributed.fsdp
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType

    from rlvr.training import launch

    launch.FSDP_ON_CPUS = True
    begin = AcceleratorState.__init__

    def begin_with_fsdp(self: Any, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
        first = not AcceleratorState._shared_state
        begin(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if first and fsdp_plugin is not None:
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = begin_with_fsdp
    shard = torch.distributed.fsdp.fully_shard

    def shard_and_say(module: Any, **kwargs: Any) -> Any:
        print("sharded:", type(module).__name__, flush=True)
        return shard(module, **kwargs)

    torch.distributed.fsdp.fully_shard = shard_and_say


if __name__ == "__main__":
    main(sys.argv[1])
