"""scripts/serve_rewards.py, and the commands of its docs page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rlvr.reward_server import __main__ as serve_rewards
from tests.support.reward_servers import REPOSITORY, RewardServer, recipe_of

PAGE = (REPOSITORY / "docs" / "remote-rewards.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def own_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keys that servers make are not those of the user."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.slow
def test_the_commands_of_the_docs_page_work_while_the_server_still_starts(tmp_path: Path) -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (words,) = (line.split() for line in "".join(blocks).splitlines() if line.startswith("python scripts/serve_"))
    (asked,) = (block for block in blocks if "/score" in block)
    if shutil.which("curl") is None:
        pytest.skip("curl, which the page uses, is not on this machine")
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "GRPO_REWARDS_KEY": ""}
    with RewardServer(*words[2:], makes_key=True, env=home, ready=False) as server:
        script = asked.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}").replace("\ncurl", "\necho\ncurl")
        done = subprocess.run(
            ["bash", "-euc", script],
            env={**os.environ, **home},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        ready, rewards, scored, judged, *metrics = done.stdout.strip().splitlines()
    assert json.loads(ready) == {"status": "ready"}
    assert "code_execution" in [one["name"] for one in json.loads(rewards)["rewards"]]
    assert json.loads(scored)["results"][0]["values"] == [0.5]
    assert json.loads(judged)["judgements"][0]["verdicts"] == ["AC"]
    assert 'grpo_verdicts_total{verdict="AC"} 1.0' in metrics


@pytest.mark.slow
def test_every_flag_and_path_of_the_docs_page_exists(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serve_rewards.main(["--help"])
    text = capsys.readouterr().out
    for flag in set(re.findall(r"`(--[a-z_]+)", PAGE)) - {"--check"}:
        assert flag in text, flag
    with RewardServer("--judge_only") as server:
        paths = set(server.get("/openapi.json")[1]["paths"])
    assert set(re.findall(r"`(/[a-z_]+)`", PAGE)) <= paths


@pytest.mark.parametrize(
    ("words", "named", "why"),
    [
        (["--config", "recipes/nowhere.yaml"], "recipes/nowhere.yaml", "a missing recipe"),
        (["--rewards", "math_corectness"], "math_correctness", "an unknown reward"),
        (["--rewards", " , "], "--rewards", "no reward"),
        (["--rewards", "answer_format", "--port", "99999"], "99999", "an invalid port"),
    ],
)
def test_wrong_arguments_exit_with_2(
    words: list[str], named: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve_rewards.main(words) == 2 and named in capsys.readouterr().err, why


def test_recipe_keys_need_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        serve_rewards.main(["--judge_only", "--learning_rate", "1"])
    assert ended.value.code == 2 and "--learning_rate" in capsys.readouterr().err


@pytest.mark.slow
def test_rewards_with_where_trainer_are_not_served(tmp_path: Path) -> None:
    rewards: list[dict[str, Any]] = [
        {"name": "answer_format", "where": "http://127.0.0.1:1"},
        {"name": "math_correctness", "where": "trainer"},
    ]
    with RewardServer("--config", recipe_of(tmp_path / "recipe.yaml", rewards)) as server:
        assert [one["name"] for one in server.get("/rewards")[1]["rewards"]] == ["answer_format"]
        assert "Not served: math_correctness" in server.said()
        assert server.end() == 0 and server.said().endswith("Ended.\n")


def test_the_error_of_a_reward_that_fails_to_import_is_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fails_in_workers.py"
    file.write_text(
        "import sys\nif 'pytest' not in sys.modules:\n    raise OSError('no such device')\n"
        "def fails_in_workers(completions, **kwargs):\n    return [1.0]\n"
    )
    recipe = recipe_of(tmp_path / "recipe.yaml", [str(file)])
    assert serve_rewards.main(["--config", str(recipe), "--port", "0"]) == 2
    assert "no such device" in capfd.readouterr().err
