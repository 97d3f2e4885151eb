"""rlvr/sagemaker/container/pid1.py as process 1 of a container."""

from __future__ import annotations

import importlib.metadata
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.sagemaker_emulator import containers
from tests.support.sagemaker_emulator.containers import Attempt, Host

pytestmark = pytest.mark.skipif(containers.why_not() is not None, reason=str(containers.why_not()))

PROGRAM = containers.REPOSITORY / "rlvr" / "sagemaker" / "container" / "pid1.py"
# A training process: it registers, and on SIGTERM saves for a moment.
TRAINER = """
import os, pathlib, signal, sys, time
def save(number, frame):
    time.sleep(0.3)
    print("saved", flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
(pathlib.Path("/tmp/grpo-ranks") / str(os.getpid())).touch()
print("training", flush=True)
time.sleep(300)
"""
# A launcher like accelerate's: it reports SIGTERM, and ends with its trainer.
LAUNCHER = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda number, frame: print("launcher signalled", flush=True))
sys.exit(subprocess.call([sys.executable, "/opt/ml/trainer.py"]) and 1)
"""
ONE = "python3 /opt/ml/pid1.py"


class Container:
    """A container that was started, its process 1 a shell command."""

    def __init__(self, folder: Path, shell: str) -> None:
        ml = folder / "ml"
        (ml / "output").mkdir(parents=True)
        shutil.copy(PROGRAM, ml)
        (ml / "trainer.py").write_text(TRAINER)
        (ml / "launcher.py").write_text(LAUNCHER)
        self.ml = ml
        self.log = folder / "log"
        environment = containers.environment_of_the_image()
        host = Host("algo-1", ml, ["/bin/bash", "-c", shell], environment, self.log)
        self.attempt: Attempt = containers.start([host], folder)

    def wait_for(self, words: str) -> None:
        until = time.monotonic() + 60
        while words not in self.printed():
            assert time.monotonic() < until, f"never printed {words!r}: {self.printed()}"
            time.sleep(0.02)

    def printed(self) -> str:
        return self.log.read_text() if self.log.is_file() else ""

    def code(self, seconds: float = 60) -> int | None:
        self.attempt.wait(seconds)
        return self.attempt.codes.get("algo-1")


Start = Callable[[str], Container]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Container] = []

    def start(shell: str) -> Container:
        started.append(Container(tmp_path / str(len(started)), shell))
        return started[-1]

    yield start
    for container in started:
        container.attempt.end()


def test_a_stop_reaches_the_trainer_and_not_the_launcher(start: Start) -> None:
    container = start(
        f"exec {ONE} /bin/bash -c 'python3 /opt/ml/launcher.py || {{ echo Error > /opt/ml/output/failure; exit 1; }}'"
    )
    container.wait_for("training")
    container.attempt.signal("term", "algo-1")
    assert container.code() == 143
    assert "saved" in container.printed() and "launcher signalled" not in container.printed()
    assert not (container.ml / "output" / "failure").exists(), "a stop is no failure"


def test_a_command_that_succeeds_despite_a_stop_has_exit_code_0(start: Start) -> None:
    container = start(f"exec {ONE} /bin/bash -c 'python3 /opt/ml/launcher.py || exit 0'")
    container.wait_for("training")
    container.attempt.signal("term", "algo-1")
    assert container.code() == 0


def test_a_stop_before_training_ends_the_container_at_once(start: Start) -> None:
    container = start(f"exec {ONE} /bin/bash -c 'echo installing; sleep 100; echo installed'")
    container.wait_for("installing")
    started_at = time.monotonic()
    container.attempt.signal("term", "algo-1")
    assert container.code() == 143 and time.monotonic() - started_at < 60


@pytest.mark.parametrize(
    ("command", "code", "why"),
    [
        ("true", 0, "it ended well"),
        ("bash -c 'exit 3'", 3, "its own code, which the service writes into the reason"),
        ("bash -c 'kill -9 $$'", 137, "a signal ended it, as when the memory runs out"),
        ("bash -c 'echo why > /opt/ml/output/failure; exit 2'", 2, "a failure without a stop stays one"),
    ],
)
def test_the_containers_exit_code_is_the_commands(start: Start, command: str, code: int, why: str) -> None:
    container = start(f"exec {ONE} {command}")
    assert container.code() == code, why
    assert (container.ml / "output" / "failure").exists() == (code != 0), "a failure always has a reason"


@pytest.mark.slow
def test_orphans_are_reaped(start: Start) -> None:
    zombies = "grep -l '^State:.Z' /proc/[0-9]*/status | wc -l"
    container = start(f"exec {ONE} /bin/bash -c '(sleep 0.2 & ) ; (sleep 0.3 & ); sleep 2; echo zombies: $({zombies})'")
    assert container.code() == 0
    assert "zombies: 0" in container.printed()


def test_the_images_libraries_are_pinned_for_pip(start: Start) -> None:
    container = start(
        f"export PIP_CONSTRAINT=/ours.txt; exec {ONE} /bin/bash -c 'for f in $PIP_CONSTRAINT; do echo $f; cat $f; done'"
    )
    container.code()
    lines = container.printed().splitlines()
    assert "/ours.txt" in lines, "the job's own constraints stay"
    assert f"torch=={importlib.metadata.version('torch')}" in lines
    assert not [line for line in lines if line.startswith(("trl==", "transformers=="))], "the job chooses these"
