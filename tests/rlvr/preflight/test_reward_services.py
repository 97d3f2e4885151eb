"""The first contact with reward servers: one error with its fix, soon, and a warning of files that differ."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr.config.recipe import load_recipe
from rlvr.config.specs import RewardSpec
from rlvr.preflight.prepare import prepare_run
from rlvr.preflight.reward_services import contact_services
from rlvr.scoring.backends.base import differing_file
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scorer
from tests.support.locks import locked_by_another_process
from tests.support.reward_servers import RewardServer

RECIPE = load_recipe("recipes/demo-programs.yaml")
REWARD = "def mine(completions, **kwargs):\n    return [0.0] * len(completions)\n"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rewards") / "mine.py"
    path.write_text(REWARD)
    return path


@pytest.fixture(scope="module")
def server(file: Path) -> Iterator[RewardServer]:
    with RewardServer("--rewards", f"code_format,{file}", env={"GRPO_REWARDS_KEY": "the-key-of-the-server"}) as started:
        yield started


@pytest.fixture(scope="module")
def website() -> Iterator[str]:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{site.server_port}"
        site.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "key", "names", "parts", "why"),
    [
        ("http://127.0.0.1:9", "", "code_format", ["Connection refused", "--config recipes/demo", "--port 9"], "none"),
        ("http://nowhere.invalid:8000", "", "code_format", ["--host 0.0.0.0"], "no such machine"),
        ("server", "", "code_format", ["401", "none is set"], "no key"),
        ("server", "another-key-0123456", "code_format", ["401", "in GRPO_REWARDS_KEY"], "another key"),
        ("server", "the-key-of-the-server", "repetition", ["has no reward repetition", "--config"], "another reward"),
        ("website", "", "code_format", ["is no reward server", "404"], "another service"),
        ("http://127.0.0.1:9", "", "code_format repetition", ["code_format and repetition"], "two rewards, one error"),
    ],
)
def test_a_check_names_a_service_that_cannot_be_used_at_once(
    where: str,
    key: str,
    names: str,
    parts: list[str],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("GRPO_REWARDS_KEY", key)
    if "://" not in where:
        fixture = request.getfixturevalue(where)
        where = fixture if isinstance(fixture, str) else fixture.url
    rewards = load_rewards([RewardSpec(name, where=where) for name in names.split()])
    started = time.monotonic()
    with Scorer(rewards, waits_for_services=False) as scorer:
        [problem] = contact_services(RECIPE, scorer, required=True)
        refused = "401" in parts or "404" in parts or "--config" in parts
        assert bool(list(contact_services(RECIPE, scorer, required=False))) is refused, "a continued run may wait"
    assert time.monotonic() - started < 60, why
    assert (problem.kind, problem.level, problem.key) == ("reward-server", "error", f"rewards.{names.split()[0]}.where")
    assert all(part in problem.message for part in (where, *parts)), problem.message


@pytest.mark.slow
def test_a_file_that_differs_on_the_server_is_one_counted_warning(
    server: RewardServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPO_REWARDS_KEY", "the-key-of-the-server")
    file.write_text(f"{REWARD}\n# edited\n")
    rewards = f"[math_correctness, {{name: {file}, where: '{server.url},http://127.0.0.1:9'}}]"
    recipe = load_recipe("recipes/demo-arithmetic.yaml", ["--rewards", rewards])
    with prepare_run(recipe, only_check=True) as run:
        [warning] = [remark for remark in run.remarks if remark.level == "warning"]
        assert warning == differing_file(run.rewards[1], [server.url]) and warning.kind == "differing-reward"
        assert warning.key == f"rewards.{file}" and server.url in warning.message and str(file) in warning.message
        assert run.scorer.warnings() == [], "a file that differs is named once a run"


@pytest.mark.slow
def test_a_server_that_restarts_with_another_file_in_another_folder_is_named(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "mine.py"
    here.write_bytes(file.read_bytes())
    with RewardServer("--rewards", file) as server:
        spec = RewardSpec(str(here), where=server.url)
        with Scorer(load_rewards([spec])) as scorer:
            assert scorer.score(["p"], ["c"], {}).values == [[0.0]] and not capsys.readouterr().err
            server.end()
            file.write_text(REWARD.replace("0.0", "1.0"))
            server.start()
            assert [scorer.score(["p"], ["c"], {}).values for _ in range(3)] == [[[1.0]]] * 3
    [warning] = capsys.readouterr().err.splitlines()
    assert warning.startswith("warning: ") and server.url in warning and str(here) in warning


@pytest.mark.slow
def test_a_check_warns_of_a_living_run_in_the_output_folder(tmp_path: Path) -> None:
    recipe = load_recipe("recipes/demo-arithmetic.yaml", ["--output_dir", str(tmp_path / "run")])
    with locked_by_another_process(tmp_path / "run") as other, prepare_run(recipe, only_check=True) as run:
        [warning] = [remark for remark in run.remarks if remark.level == "warning"]
    assert (warning.kind, warning.key) == ("run-in-use", "output_dir")
    assert f"process {other} on" in warning.message
