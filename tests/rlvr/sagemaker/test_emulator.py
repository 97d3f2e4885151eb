"""The emulator of the training service leaves nothing on this machine. The tests of jobs show how it emulates."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import wait_until
from tests.support.sagemaker_emulator import containers


@pytest.mark.skipif(containers.why_not() is not None, reason=str(containers.why_not()))
def test_nothing_remains_after_the_tests_are_killed(tmp_path: Path) -> None:
    """kill -9 of the process that runs the emulator."""
    code = f"""
import pathlib, sys, time
from tests.support.sagemaker_emulator import containers
folder = pathlib.Path({str(tmp_path)!r}); (folder / "ml").mkdir()
command = ["/bin/bash", "-c", "echo up; exec -a left-behind-{os.getpid()} sleep 100"]
host = containers.Host("algo-1", folder / "ml", command, containers.environment_of_the_image(), folder / "log")
containers.start([host], folder)
while "up" not in (folder / "log").read_text(): time.sleep(0.05)
print("up", flush=True)
time.sleep(100)
"""
    mounts, devices = _mounts(tmp_path), sorted(os.listdir("/sys/class/net"))
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=containers.REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    assert _commands(f"left-behind-{os.getpid()}"), "else the rest shows nothing"
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not _commands(f"left-behind-{os.getpid()}"))  # the container
    assert _mounts(tmp_path) == mounts
    assert sorted(os.listdir("/sys/class/net")) == devices
    assert not Path("/opt/ml").exists() or not os.listdir("/opt/ml")


def _mounts(folder: Path) -> list[str]:
    """What is mounted, but for the small disks that other tests mount below /tmp meanwhile."""
    rows = Path("/proc/mounts").read_text().splitlines()
    return [row for row in rows if str(folder) in row or not row.split()[1].startswith("/tmp/")]


def _commands(word: str) -> list[str]:
    commands = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if line.startswith(word):
            commands.append(line)
    return commands
