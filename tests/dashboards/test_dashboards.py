"""Every expression of the dashboard returns values from a live Prometheus, reward server and exporter."""

from __future__ import annotations

import configparser
import http.client
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from ruamel.yaml import YAML

from rlvr.tracking.prometheus_exporter import PORT, Exporter
from tests.support.reward_servers import PATIENCE_S, RewardServer, recipe_of

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "dashboards"
DASHBOARD = json.loads((FOLDER / "grafana" / "grpo.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
BLOCKS = re.findall(r"^```bash\n(.*?)\n```$", (REPOSITORY / "docs" / "dashboards.md").read_text(), re.M | re.S)
COMMANDS = [command for block in BLOCKS for command in block.replace("\\\n", "").splitlines()]
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed: apt-get install --no-install-recommends prometheus",
)

# Metrics of a run with all options.
FIGURES = {
    "loss": -0.01,
    "grad_norm": 0.4,
    "learning_rate": 1e-5,
    "entropy": 0.03,
    "kl": 0.001,
    "policy_kl": 0.002,
    "reward": 0.625,
    "reward_std": 0.4,
    "reward/min": 0.0,
    "reward/max": 1.2,
    "frac_reward_zero_std": 0.25,
    "rewards/code_execution/mean": 0.5,
    "rewards/code_execution/std": 0.5,
    "rewards/unscored_fraction": 0.125,
    "completions/mean_length": 33.5,
    "completions/max_length": 64.0,
    "completions/clipped_ratio": 0.05,
    "completions/duplicate_fraction": 0.5,
    "clip_ratio/region_mean": 0.01,
    "code_execution/verdict_ac": 0.75,
    "step_time": 1.5,
    "time/generation": 1.0,
    "time/rewards": 0.25,
    "time/update": 0.25,
    "num_tokens": 4096.0,
    "eval_accuracy": 0.375,
    "eval_reward": 0.5,
    "epoch": 0.5,
}


def documented(begin: str, **put: str | Path) -> list[str]:
    """The arguments of a command of docs/dashboards.md, with replacements."""
    words = shlex.split(next(command for command in COMMANDS if command.startswith(begin)))
    for old, new in put.items():
        assert any(old in word for word in words), old
        words = [word.replace(old, str(new)) for word in words]
    return words


def asked(expression: str) -> str:
    """An expression as Grafana sends it, with every server and every run selected."""
    for one in DASHBOARD["templating"]["list"]:
        expression = expression.replace(f"${one['name']}", one["allValue"])
    expression = expression.replace("$__rate_interval", "10s")
    assert "$" not in expression
    return expression


@dataclass
class Prometheus:
    port: int

    def ask(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The labels and the value of each series."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", "/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert answer["status"] == "success", (expression, answer)
        return [(series["metric"], float(series["value"][1])) for series in answer["data"]["result"]]


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


@pytest.fixture(scope="module")
def prometheus(server: RewardServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Start the documented commands on free ports, with a shorter scrape interval."""
    folder = tmp_path_factory.mktemp("prometheus")
    run = folder / "runs" / "demo"
    run.mkdir(parents=True)
    (run / "run.json").write_text('{"format": 1, "status": "running"}')
    (run / "metrics.jsonl").write_text(json.dumps({"step": 7, "time": time.time(), **FIGURES}) + "\n")
    command = documented("python -m rlvr.tracking.prometheus_exporter", runs=folder / "runs")
    exporter = subprocess.Popen(
        [sys.executable, *command[1:], "--port", "0"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    watcher = None
    try:
        assert exporter.stdout is not None
        port = exporter.stdout.readline().rsplit(":", 1)[1].partition("/")[0]
        config = (FOLDER / "prometheus.yml").read_text()
        places = {"127.0.0.1:8000": f"127.0.0.1:{server.port}", f"127.0.0.1:{PORT}": f"127.0.0.1:{port}"}
        for old, new in {**places, "scrape_interval: 15s": "scrape_interval: 1s"}.items():
            assert config.count(f"{old}") == 1, old
            config = config.replace(old, new)
        (folder / "prometheus.yml").write_text(config)
        put = {"dashboards/prometheus.yml": folder / "prometheus.yml", "runs/prometheus": folder / "data"}
        with (folder / "log").open("w") as log:
            watcher = subprocess.Popen(
                documented("prometheus", **put, **{"127.0.0.1:9090": "127.0.0.1:0"}), cwd=REPOSITORY, stderr=log
            )
        yield Prometheus(_port_of(watcher, folder / "log"))
    finally:
        for process in (exporter, watcher):
            if process is not None:
                process.kill()
                process.communicate()


def _port_of(process: subprocess.Popen[bytes], log: Path) -> int:
    end = time.monotonic() + PATIENCE_S
    while True:
        found = re.search(r'msg="Listening on" address=127\.0\.0\.1:(\d+)', log.read_text())
        if found and "Server is ready" in log.read_text():
            return int(found[1])
        assert process.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.05)


@pytest.mark.slow
@needs_prometheus
def test_every_expression_of_the_dashboard_returns_values(prometheus: Prometheus, server: RewardServer) -> None:
    """Wait until each expression has finite values while the server works; rates must be above 0."""
    assert len(EXPRESSIONS) > 40
    end = time.monotonic() + PATIENCE_S
    missing = list(dict.fromkeys(EXPRESSIONS))
    while missing:
        work(server)
        time.sleep(0.5)
        found = {expression: prometheus.ask(asked(expression)) for expression in missing}
        missing = [
            expression
            for expression, series in found.items()
            if not series
            or not all(math.isfinite(value) for _, value in series)
            or ("rate(" in expression and not any(value > 0 for _, value in series))
        ]
        assert time.monotonic() < end, {expression: found[expression] for expression in missing}


@needs_prometheus
def test_prometheus_has_the_values_of_server_and_run(prometheus: Prometheus, server: RewardServer) -> None:
    work(server)
    rows = server.figure('grpo_rows_total{reward="code_execution"}')
    assert rows >= 2
    for expression, value in (
        ('grpo_training_metric{run="demo", name="reward"}', FIGURES["reward"]),
        ('grpo_training_metric{run="demo", name="code_execution/verdict_ac"}', 0.75),
        ('grpo_training_status{run="demo", status="running"}', 1.0),
        ('grpo_rows_total{reward="code_execution"}', rows),
        ('grpo_rows_unscored_total{reward="code_execution"}', rows / 2),
    ):
        end = time.monotonic() + PATIENCE_S
        while [found for _, found in prometheus.ask(expression)] != [value]:
            assert time.monotonic() < end, (expression, value, prometheus.ask(expression))
            time.sleep(0.2)


@needs_prometheus
def test_promtool_accepts_configuration_and_metrics(server: RewardServer, tmp_path: Path) -> None:
    config = (FOLDER / "prometheus.yml").read_text()
    with_key = re.sub(r"^    # (?=authorization:|  credentials_file:)", "    ", config, flags=re.M)
    assert with_key.count("/path/to/key") == 1 and with_key != config
    (tmp_path / "key").write_text("a key")
    (tmp_path / "with_key.yml").write_text(with_key.replace("/path/to/key", str(tmp_path / "key")))
    for path in (FOLDER / "prometheus.yml", tmp_path / "with_key.yml"):
        subprocess.run(["promtool", "check", "config", path], check=True, timeout=300)
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 7, "time": time.time(), **FIGURES, "my/own": 1}) + "\n")
    work(server)
    for page in (generate_latest(Exporter(tmp_path)).decode(), server.get("/metrics")[1]):
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=300
        )
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


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
