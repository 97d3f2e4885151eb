"""The reward server and the exporter have every metric of the dashboard, and its files fit together."""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from ruamel.yaml import YAML

from rlvr.tracking.prometheus_exporter import Exporter
from tests.support.reward_servers import RewardServer, recipe_of

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "dashboards"
DASHBOARD = json.loads((FOLDER / "grafana" / "grpo.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
PAGE = (REPOSITORY / "docs" / "monitoring.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)\n```$", PAGE, re.M | re.S)
COMMANDS = [command for block in BLOCKS for command in block.replace("\\\n", "").splitlines()]


def work(server: RewardServer) -> None:
    """Send scores (one row without a value), judgements and a refused request."""
    tests = [{"input": "", "output": "3"}]
    rows = {"prompts": ["Add."] * 2, "completions": ["```python\nprint(1 + 2)\n```"] * 2}
    score = {"rewards": ["code_execution"], **rows, "columns": {"tests": [tests, []]}}
    status, answer = server.post("/score", score)
    assert status == 200 and answer["results"][0]["values"] == [1.0, None]
    status, answer = server.post("/judge", {"submissions": [{"program": "print(1 + 2)", "tests": tests}]})
    assert status == 200 and answer["judgements"][0]["verdicts"] == ["AC"]
    assert server.get("/metrics", Host="elsewhere.example")[0] == 421


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RewardServer]:
    recipe = recipe_of(tmp_path_factory.mktemp("server") / "recipe.yaml", ["code_execution"])
    with RewardServer("--config", recipe, "--workers", "1") as started:
        yield started


@pytest.mark.slow
def test_every_metric_of_the_dashboard_is_on_a_page(server: RewardServer, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"format": 1, "status": "running"}')
    (tmp_path / "metrics.jsonl").write_text('{"step": 7, "reward": 0.5}\n')
    work(server)
    pages = server.get("/metrics")[1] + generate_latest(Exporter(tmp_path)).decode()
    exported = set(re.findall(r"^(\w+)[{ ]", pages, re.M)) | {"up"}
    known = [*re.findall(r"`([^`\n]+)`", PAGE), "step", "time", "code_execution/verdict_ac"]
    for expression in EXPRESSIONS:
        used = re.findall(r"(\w+){", expression)
        assert used and set(used) <= exported, expression
        for name in re.findall(r'\bname=~?"([^"]+)"', expression):
            assert any(re.fullmatch(name, metric) for metric in known), name


def test_grafanas_configuration_matches_files_and_prometheus() -> None:
    provisioning = FOLDER / "grafana" / "provisioning"
    (source,) = YAML(typ="safe").load(provisioning / "datasources" / "prometheus.yml")["datasources"]
    config: dict[str, Any] = YAML(typ="safe").load(FOLDER / "prometheus.yml")
    used = {panel["datasource"]["uid"] for panel in PANELS}
    used |= {target["datasource"]["uid"] for panel in PANELS for target in panel["targets"]}
    used |= {one["datasource"]["uid"] for one in DASHBOARD["templating"]["list"]}
    assert used == {source["uid"]}
    assert source["url"].removeprefix("http://") in next(command for command in COMMANDS if "prometheus " in command)
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]
    (provider,) = YAML(typ="safe").load(provisioning / "dashboards" / "grpo.yml")["providers"]
    assert list(Path(provider["options"]["path"].replace("$PWD", str(REPOSITORY))).glob("*.json"))
    ini = configparser.ConfigParser(interpolation=None)
    ini.read(FOLDER / "grafana" / "grafana.ini")
    for path in (ini["paths"]["provisioning"], ini["dashboards"]["default_home_dashboard_path"]):
        assert Path(path.replace("$__env{PWD}", str(REPOSITORY))).exists()
