"""The script, and the page about it: what the page says can be typed, and does what it says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts import serve_rewards
from tests.support.reward_servers import REPOSITORY, RewardServer, recipe_of

PAGE = (REPOSITORY / "docs" / "reward-server.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page_do_what_it_says() -> None:
    started, asked = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    words = started.split()
    assert words[:2] == ["python", "scripts/serve_rewards.py"]
    if shutil.which("curl") is None:
        pytest.skip("curl, which the page uses, is not on this machine")
    with RewardServer(*words[2:]) as server:
        script = asked.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}").replace("\ncurl", "\necho\ncurl")
        done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True, timeout=120)
        ready, rewards, scored, judged, *metrics = done.stdout.splitlines()
    assert json.loads(ready) == {"status": "ready"}
    assert "code_execution" in [one["name"] for one in json.loads(rewards)["rewards"]]
    assert json.loads(scored)["results"][0]["values"] == [0.5]
    assert json.loads(judged)["judgements"][0]["verdicts"] == ["AC"]
    assert 'grpo_verdicts_total{verdict="AC"} 1' in metrics


def test_every_flag_and_path_that_the_page_names_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serve_rewards.main(["--help"])
    told = capsys.readouterr().out
    for flag in set(re.findall(r"`(--[a-z-]+)", PAGE)) - {"--reward", "--rewards", "--help"}:
        assert flag in told, flag
    with RewardServer("--judge-only") as server:
        paths = set(server.get("/openapi.json")[1]["paths"])
    assert set(re.findall(r"`(/[a-z_]+)`", PAGE)) <= paths


@pytest.mark.parametrize(
    ("words", "told", "why"),
    [
        (["--config", "recipes/nowhere.yaml"], "There is no recipe", "a recipe that isn't there"),
        (["--rewards", "math_corectness"], "Did you mean math_correctness?", "a reward that isn't there"),
        (["--rewards", " , "], "names no reward", "none at all"),
        (["--rewards", "answer_format", "--port", "99999"], "port 99999", "no port"),
    ],
)
def test_what_it_is_started_with_is_checked(
    words: list[str], told: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve_rewards.main(words) == 2 and told in capsys.readouterr().err, why


def test_slots_that_no_worker_could_use_are_refused_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPO_JUDGE_SLOTS", "0")
    assert serve_rewards.main(["--judge-only", "--port", "0"]) == 2
    assert "GRPO_JUDGE_SLOTS is '0'" in capsys.readouterr().err


def test_only_a_recipe_has_keys_to_override(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        serve_rewards.main(["--judge-only", "--learning_rate", "1"])
    assert ended.value.code == 2 and "--learning_rate" in capsys.readouterr().err


def test_a_recipe_is_served_but_for_what_the_trainer_calls_itself(tmp_path: Path) -> None:
    rewards: list[dict[str, Any]] = [
        {"name": "answer_format", "where": "http://127.0.0.1:1"},
        {"name": "math_correctness", "where": "trainer"},
    ]
    with RewardServer("--config", recipe_of(tmp_path / "recipe.yaml", rewards)) as server:
        assert [one["name"] for one in server.get("/rewards")[1]["rewards"]] == ["answer_format"]
        assert "Not served: math_correctness" in server.said()
        assert server.end() == 0 and server.said().endswith("Ended.\n")


def test_rewards_that_do_not_start_end_the_server_with_their_own_words(
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
