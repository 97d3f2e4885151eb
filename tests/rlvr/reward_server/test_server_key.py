"""A server makes a key of its own; keys are private; wrong ones are counted and logged."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest

from rlvr.config.specs import RewardSpec
from rlvr.reward_server import server_key
from rlvr.scoring import reward_key
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scorer
from tests.support.input_errors import input_error
from tests.support.processes import descendants
from tests.support.reward_servers import RewardServer

KEY = "a-key-of-the-tests-0123"


@pytest.mark.slow
def test_a_server_makes_a_key_that_runs_on_this_machine_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("GRPO_REWARDS_KEY", raising=False)
    with RewardServer("--rewards", "answer_format", makes_key=True) as server:
        file = tmp_path / "grpo-recipes" / "reward-server.key"
        key = file.read_text().strip()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert str(file) in server.said() and key not in server.said()
        assert server.get("/rewards")[0] == 401
        assert server.get("/rewards", Authorization=f"Bearer {key}")[0] == 200
        with Scorer(load_rewards([RewardSpec("answer_format", where=server.url)])) as scorer:
            assert scorer.score(["p"], ["c"], {}).values == [[0.0]]
    assert server_key.server_key(None) == (key, file), "the next server has the same key"


@pytest.mark.parametrize(
    ("address", "sent", "why"),
    [
        ("http://127.0.0.1:8000", True, "this machine"),
        ("http://localhost:8000", True, "this machine"),
        ("http://[::1]:8000", True, "this machine"),
        ("http://judge:8000", False, "another machine must not learn the key of this one"),
        ("http://127.0.0.1.example.org", False, "a similar name"),
    ],
)
def test_a_client_sends_the_key_of_this_machine_to_this_machine_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, sent: bool, why: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("GRPO_REWARDS_KEY", raising=False)
    assert reward_key.client_key(address) is None
    key, _ = server_key.server_key(None)
    assert reward_key.client_key(address) == (key if sent else None), why
    monkeypatch.setenv("GRPO_REWARDS_KEY", KEY)
    assert reward_key.client_key(address) == KEY, "the key that the user sets is for every server of the recipe"


def test_a_made_key_that_other_users_can_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("GRPO_REWARDS_KEY", raising=False)
    server_key.server_key(None)
    reward_key.default_file().chmod(0o640)
    with input_error("key-not-private"):
        server_key.server_key(None)


@pytest.mark.slow
def test_the_key_is_in_no_environment_of_the_server(tmp_path: Path) -> None:
    with RewardServer("--rewards", "answer_format", env={"GRPO_REWARDS_KEY": KEY}) as server:
        assert server.get("/rewards", Authorization=f"Bearer {KEY}")[0] == 200
        processes = [server.process.pid, *descendants(server.process.pid)]
        assert len(processes) > 2, "its workers, too"
        for process in processes:
            assert KEY.encode() not in Path(f"/proc/{process}/environ").read_bytes()


@pytest.mark.slow
def test_wrong_keys_are_logged_seldom_and_without_the_key() -> None:
    with RewardServer("--judge_only", env={"GRPO_REWARDS_KEY": KEY}) as server:
        for _ in range(30):
            assert server.get("/rewards", Authorization="Bearer not-the-key-of-the-server")[0] == 401
        end = time.monotonic() + 10
        while "wrong key" not in server.said() and time.monotonic() < end:
            time.sleep(0.05)
        lines = [line for line in server.said().splitlines() if "wrong key" in line]
        assert len(lines) == 1 and "127.0.0.1" in lines[0] and "not-the-key" not in server.said()
