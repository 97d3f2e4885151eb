"""A second run in the directory of a run that is alive is refused, and changes nothing in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.launching import LORA, SHORT, Launch, Start, accelerated, metrics

pytestmark = pytest.mark.slow

# The third step waits for a file.
WAITING = """
import pathlib, time, zlib

def waiting(completions, trainer_state, *, folder="", **kwargs):
    while trainer_state.global_step == 2 and not (pathlib.Path(folder) / "go").exists():
        time.sleep(0.05)
    return [zlib.crc32(completion[-1]["content"].encode()) % 100 / 100 for completion in completions]
"""


@dataclass
class Living:
    """A run that is alive."""

    launch: Launch
    words: list[str]
    go: Path

    def files(self) -> dict[str, bytes]:
        """All files of the run, apart from what the run itself writes while it waits."""
        return {
            str(path.relative_to(self.launch.run.parent)): path.read_bytes()
            for path in self.launch.run.rglob("*")
            if path.is_file()
        }


@pytest.fixture(scope="module")
def living(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    folder = tmp_path_factory.mktemp("parallel")
    (folder / "waiting.py").write_text(WAITING)
    reward = {"name": f"{folder}/waiting.py", "options": {"folder": str(folder)}}
    words = [*SHORT, *LORA, "--rewards", json.dumps([reward]), "--max_steps", "4", "--reward_timeout_s", "300"]
    words += ["--save_strategy", "steps", "--save_steps", "2"]
    launch = start(["run_grpo", *words], folder / "run")
    launch.wait_until((folder / "run" / "checkpoint-2" / "complete.json").is_file, "checkpoint of step 2")
    yield Living(launch, words, folder / "go")
    launch.kill()


def test_the_same_command_is_refused_with_exit_2(living: Living, start: Start) -> None:
    before = living.files()
    second = start(["run_grpo", *living.words], living.launch.run).wait()
    assert second.codes() == [2], second.output()
    assert "Traceback" not in second.output()
    pid = (living.launch.notes / "0.pid").read_text()
    assert all(part in second.output() for part in (f"process {pid} on ", "output_dir"))
    assert living.files() == before


def test_all_ranks_of_a_launch_end_with_exit_2(living: Living, start: Start) -> None:
    before = living.files()
    launch = start(accelerated("cpu", *living.words, "--use_cpu", "true"), living.launch.run).wait()
    assert launch.codes() == [2, 2], launch.output()
    assert launch.output().count("is in use") == 1, "the main process prints"
    assert "InputError" not in launch.output()
    assert living.files() == before


def test_a_check_is_not_refused(living: Living, start: Start) -> None:
    before = living.files()
    assert start(["run_grpo", *living.words, "--check"], living.launch.run).wait().codes() == [0]
    assert living.files() == before


def test_after_a_kill_the_same_command_continues_though_workers_live(living: Living, start: Start) -> None:
    os.kill(int((living.launch.notes / "0.pid").read_text()), 9)
    living.launch.process.wait()
    living.go.touch()
    last = start(["run_grpo", *living.words], living.launch.run, WITHOUT_REPORT="1").wait()
    assert last.codes() == [0], last.output()
    assert "continues from" in last.output()
    assert [line["step"] for line in metrics(living.launch.run)] == [1, 2, 3, 4]
    assert not list(living.launch.run.parent.glob(".*.lock"))
