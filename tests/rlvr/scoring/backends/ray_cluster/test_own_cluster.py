"""Without a cluster that is there, a run starts one: one for all its processes, that ends with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[5]

RANK = """
import json, os, sys
from rlvr.scoring.registry import load_rewards
from rlvr.config.specs import RewardSpec
from rlvr.scoring.scorer import Scorer

with Scorer(load_rewards([RewardSpec(f"{sys.argv[1]}:where_am_i", where="ray")])) as scoring:
    scored = scoring.score(["p"], ["c"], {})
    print(json.dumps([scored.values[0][0], [fault.message for fault in scored.failures]]), flush=True)
    input()
"""
REWARD = """
import os

def where_am_i(completions, **kwargs):
    assert "SECRET_OF_THE_TRAINER" not in os.environ
    return [float(os.environ["RAY_RAYLET_PID"])] * len(completions)
"""


@pytest.mark.slow
def test_processes_of_one_run_share_a_cluster_that_ends_with_them(tmp_path: Path) -> None:
    reward = tmp_path / "where_am_i.py"
    reward.write_text(REWARD, encoding="utf-8")
    folder = tmp_path / "files"
    folder.mkdir()
    env = {
        **os.environ,
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_PORT": "12345",
        "SECRET_OF_THE_TRAINER": "1",
        "TMPDIR": str(folder),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(reward)],
            cwd=REPOSITORY,
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    begun = time.monotonic()
    while not (held := list(folder.glob("grpo-recipes-*-ray-*"))) and time.monotonic() < begun + 100:
        time.sleep(0.05)
    assert [file.stat().st_mode & 0o777 for file in held] == [0o600], "it holds the cluster's token"
    said = []
    for rank in ranks:
        assert rank.stdout is not None
        said.append(json.loads(rank.stdout.readline()))
    (first, faults), (second, others) = said
    assert not faults + others and first == second > 0, said
    for rank in ranks:
        rank.communicate("\n", timeout=200)
    end = time.monotonic() + 60
    while Path(f"/proc/{int(first)}").exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert not Path(f"/proc/{int(first)}").exists(), "the raylet is left behind"
    assert not list(folder.glob("grpo-recipes-*-ray-*"))
