"""torch gets as many CPU threads as the process may use and the model is worth."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config

from rlvr.modeling.threads import available_cores, quota, set_threads


@pytest.mark.parametrize(
    ("membership", "files", "cores", "why"),
    [
        ("0::/", {"cpu.max": "150000 100000\n"}, 1.5, "version 2, in a container"),
        ("0::/a/b", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "50000 100000\n"}, 0.5, "version 2, of a parent"),
        ("0::/", {"cpu.max": "max 100000\n"}, math.inf, "version 2, no limit"),
        ("0::/x", {}, math.inf, "a host's root group has no file"),
        (
            "3:memory:/\n2:cpu,cpuacct:/docker/f00",
            {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            2.0,
            "version 1, in a container: the path is the host's",
        ),
        ("2:cpu:/a", {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, math.inf, "version 1"),
    ],
)
def test_the_quota_of_a_control_group_is_read(
    tmp_path: Path, membership: str, files: dict[str, str], cores: float, why: str
) -> None:
    (tmp_path / "membership").write_text(f"{membership}\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert quota(tmp_path, tmp_path / "membership") == cores, why


def test_the_ranks_of_a_host_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert 1 <= available_cores() <= len(os.sched_getaffinity(0))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000")
    assert available_cores() == 1


@pytest.mark.parametrize(
    ("hidden_size", "variable", "threads", "why"),
    [(64, None, 1, "a tiny model"), (896, None, 3, "a model worth the cores"), (64, "2", None, "the user's choice")],
)
def test_threads_fit_the_model_unless_the_user_chose(
    hidden_size: int, variable: str | None, threads: int | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    chosen: list[int] = []
    monkeypatch.setattr("torch.set_num_threads", chosen.append)
    monkeypatch.setattr("rlvr.modeling.threads.available_cores", lambda: 3)
    words = set_threads(Qwen2Config(hidden_size=hidden_size))
    assert chosen == ([] if threads is None else [threads]), why
    assert words.startswith(f"{threads or torch.get_num_threads()} ("), why
