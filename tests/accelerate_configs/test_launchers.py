"""Every launcher trains the same: two real processes on CPUs against one, with LoRA and with QLoRA.

One process and two see the same prompts and sample the same completions (prefork.sample_by_row), so whatever a launcher
shards, gathers, averages and saves must come to the same gradients and to the same adapter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import LORA, SHORT, Start, accelerated, adapter, metrics, reward_words, seen
from tests.support.processes import free_port

pytestmark = pytest.mark.slow

# Offloading changes where ZeRO-2 keeps the optimizer's state, whatever the numbers of the base are. QLoRA under ZeRO-3
# is in test_interruption.py.
LAUNCHES = (
    *(("ddp", "lora"), ("zero2", "qlora"), ("zero2_offload", "lora")),
    *(("zero3", "lora"), ("fsdp2", "qlora")),
)
STEPS = 2  # the second one from the adapter that the first one made
# A process alone has one micro-batch. Of two processes each sorts the rows of a step over two, by length.
ALONE = ("--per_device_train_batch_size", "16")
TOGETHER = ("--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2")

Trained = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def trained(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The run directory of a launcher and an adapter, after STEPS steps; each is trained once."""
    folder = tmp_path_factory.mktemp("launchers")
    ended: dict[tuple[str, str], Path] = {}

    def train(launcher: str, kind: str) -> Path:
        if (launcher, kind) not in ended:
            run = folder / f"{launcher}-{kind}"
            words = [*SHORT, "--max_steps", str(STEPS), *reward_words(folder / f"{run.name}-seen")]
            words += LORA if kind == "lora" else []
            if launcher == "fsdp2" and kind == "qlora":
                words += ["--bnb_4bit_quant_storage", "float32"]
            if launcher == "python":
                command: list[Any] = ["run_grpo", *words, *ALONE]
            else:
                config = without_compiling(folder) if launcher == "zero2_offload" else launcher
                command = accelerated(config, *words, *TOGETHER)
            switches = {
                "SAMPLED_BY_ROW": "1",
                "WITHOUT_REPORT": "1",
                "SHARD_ON_CPUS": "1" if launcher == "fsdp2" else "",
            }
            launch = start(command, run, **switches).wait()
            assert launch.process.returncode == 0, launch.output()
            assert launch.codes() == [0] * (1 if launcher == "python" else 2)
            if launcher == "fsdp2":
                assert [names.count("Qwen2DecoderLayer") for names in launch.sharded()] == [2, 2]
            ended[launcher, kind] = run
        return ended[launcher, kind]

    return train


def without_compiling(folder: Path) -> Path:
    """zero2_offload.yaml with PyTorch's own Adam on the CPU: DeepSpeed's takes minutes to compile.

    accelerate has no key for that, so the rest of the file goes into one of DeepSpeed's.
    """
    import yaml

    from tests.support.launching import REPOSITORY

    content = yaml.safe_load((REPOSITORY / "accelerate_configs" / "zero2_offload.yaml").read_text())
    plan = content["deepspeed_config"]
    own = {
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": plan["zero_stage"],
            "offload_optimizer": {"device": plan["offload_optimizer_device"]},
        },
        "gradient_accumulation_steps": plan["gradient_accumulation_steps"],
        "gradient_clipping": plan["gradient_clipping"],
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
    }
    (folder / "deepspeed.json").write_text(json.dumps(own))
    del content["mixed_precision"]  # accelerate wants it in the one file or in the other
    content["deepspeed_config"] = {
        "deepspeed_config_file": str(folder / "deepspeed.json"),
        "zero3_init_flag": plan["zero3_init_flag"],
        "deepspeed_multinode_launcher": plan["deepspeed_multinode_launcher"],
    }
    path = folder / "zero2_offload.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(("kind", "words"), [("adapter", ()), ("model", ("--use_peft", "false"))])
def test_two_machines_without_a_shared_disk_train_and_measure_what_two_processes_of_one_would(
    start: Start, trained: Trained, tmp_path: Path, kind: str, words: tuple[str, ...]
) -> None:
    """Two commands that know of each other only the address, as on two machines; the adapter is equal bit for bit."""
    import torch

    place = SHORT.index("--evaluation")
    evaluated = [*SHORT[:place], *SHORT[place + 2 :], "--evaluation.rows", "8"]
    launches = []
    port = free_port()
    for machine in ("0", "1"):
        flags = ["--num_machines", "2", "--machine_rank", machine, "--num_processes", "2"]
        flags += ["--main_process_ip", "127.0.0.1", "--main_process_port", str(port)]
        all_words = [*evaluated, *LORA, *words, "--max_steps", str(STEPS), *TOGETHER]
        command = accelerated("ddp", *all_words, *reward_words(tmp_path / "seen"), flags=flags)
        launches.append(start(command, tmp_path / machine / "run", SAMPLED_BY_ROW="1", WITHOUT_REPORT="1"))
    for launch in launches:
        launch.wait()
        assert launch.process.returncode == 0 and launch.codes() == [0], launch.output()
    assert "4 prompts x 4 completions per generation over 2 processes" in launches[0].output()
    assert {"base", "trained"} <= json.loads((tmp_path / "0/run/evaluation.json").read_text()).keys()
    first, second = ({path.name: path for path in (tmp_path / machine / "run" / kind).iterdir()} for machine in "01")
    assert first.keys() == second.keys()
    # The model card of the main process gains the result, after the copy was made.
    assert [name for name in first if first[name].read_bytes() != second[name].read_bytes()] == ["README.md"]
    if kind == "adapter":
        two_machines, one = adapter(tmp_path / "0" / "run"), adapter(trained("ddp", "lora"))
        assert two_machines.keys() == one.keys()
        assert all(torch.equal(two_machines[name], one[name]) for name in one), "measuring changes nothing"


def test_fsdp_on_cpus_which_would_be_ddp_is_refused(start: Start, tmp_path: Path) -> None:
    launch = start(accelerated("fsdp2", *SHORT, *LORA), tmp_path / "run").wait()
    assert 2 in launch.codes() and "fsdp2 with use_cpu: without GPUs accelerate silently uses DDP" in launch.output()
    assert not (tmp_path / "run").exists()


def test_processes_that_do_not_join_are_refused(start: Start, tmp_path: Path) -> None:
    launch = start(accelerated("cpu", *SHORT, "--use_cpu", "false"), tmp_path / "run").wait()
    assert 2 in launch.codes() and "they don't train together" in launch.output()
    assert not (tmp_path / "run").exists()


@pytest.fixture(params=LAUNCHES, ids="-".join)
def launch(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


@pytest.fixture
def launcher(launch: tuple[str, str]) -> str:
    return launch[0]


@pytest.fixture
def kind(launch: tuple[str, str]) -> str:
    return launch[1]


def test_every_launcher_comes_to_the_rewards_losses_and_gradients_of_one_process(
    launcher: str, kind: str, trained: Trained
) -> None:
    alone, together = metrics(trained("python", kind)), metrics(trained(launcher, kind))
    # TRL makes a QLoRA adapter bfloat16, and under DeepSpeed it stays so: from the second step on texts may differ.
    exact = not (kind == "qlora" and launcher.startswith("zero"))
    for step in range(STEPS if exact else 1):
        for key in ("reward", "reward_std", "loss", "entropy", "completions/mean_length"):
            # TRL logs a mean of the micro-batches' means: here two against one.
            rel = 0.05 if key == "entropy" else 1e-3
            assert together[step][key] == pytest.approx(alone[step][key], rel=rel, abs=1e-6), (step, key)
        assert together[step]["grad_norm"] == pytest.approx(alone[step]["grad_norm"], rel=1e-3), step
        assert alone[step]["grad_norm"] > 0.01, "a gradient that could be wrong"


def test_ranks_see_different_rows_which_are_those_of_one_process(launcher: str, kind: str, trained: Trained) -> None:
    run = trained(launcher, kind)
    [alone] = seen(trained("python", kind).with_name(f"python-{kind}-seen"))
    ranks = seen(run.with_name(f"{run.name}-seen"))
    assert len(ranks) == 2 and len(alone) == STEPS
    for step in range(STEPS):
        first, second = (set(rank[step]["prompts"]) for rank in ranks)
        assert not first & second, "no prompt is on two ranks"
        assert first | second == set(alone[step]["prompts"])
    assert sorted(ranks[0][0]["completions"] + ranks[1][0]["completions"]) == sorted(alone[0]["completions"])


def test_the_saved_adapter_is_whole_has_learnt_and_is_that_of_one_process(
    launcher: str, kind: str, trained: Trained
) -> None:
    alone, together = adapter(trained("python", kind)), adapter(trained(launcher, kind))
    assert {name: tensor.shape for name, tensor in together.items()} == {
        name: tensor.shape for name, tensor in alone.items()
    }
    assert sum("lora_B" in name for name in together) == 14
    assert all(tensor.abs().sum() > 0 for name, tensor in together.items() if "lora_B" in name), "B begins as zeros"
    if not (kind == "qlora" and launcher.startswith("zero")):
        # Adam divides a gradient by its size, so an element whose gradient is rounding noise may go either way.
        for name, tensor in together.items():
            assert (tensor - alone[name]).abs().mean() < 0.01 * alone[name].abs().mean(), name


def test_the_saved_adapter_loads_in_plain_peft(launcher: str, kind: str, trained: Trained) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from tests.conftest import TINY_MODEL

    base = AutoModelForCausalLM.from_pretrained(TINY_MODEL, dtype=torch.float32)
    loaded = PeftModel.from_pretrained(base, trained(launcher, kind) / "adapter").eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad(), loaded.disable_adapter():
        before = loaded(ids).logits
    with torch.no_grad():
        assert (loaded(ids).logits - before).abs().max() > 1e-3


def test_a_reward_that_fails_before_training_ends_all_ranks_with_exit_2(start: Start, tmp_path: Path) -> None:
    """Only the main process tries the rewards."""
    (tmp_path / "fails.py").write_text("def fails(completions, **kwargs):\n    raise ValueError('no')\n")
    reward = json.dumps([{"name": f"{tmp_path}/fails.py"}])
    launch = start(accelerated("cpu", *SHORT, *LORA, "--rewards", reward), tmp_path / "run").wait()
    assert launch.codes() == [2, 2], launch.output()
    assert launch.output().count("--rewards: ") == 1, "the main process prints"
    assert not (tmp_path / "run").exists()
