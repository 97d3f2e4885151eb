"""The exporter serves the latest metrics of runs, whatever happens to their files."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from rlvr.tracking.prometheus_exporter import Exporter

REPOSITORY = Path(__file__).resolve().parents[3]
SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\["\\n])*"(,[a-z]+="(?:[^"\\\n]|\\["\\n])*")*\})? \S+')


def write(folder: Path, *lines: dict[str, Any], end: str = "\n") -> Path:
    """Append lines to a run's metrics.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write("\n".join(json.dumps(line) for line in lines) + end)
    return folder


def page_of(exporter: Exporter) -> str:
    return generate_latest(exporter).decode()


def samples(page: str) -> dict[str, float]:
    lines = (line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def named(metric: str, run: str = "r") -> str:
    return f'grpo_training_metric{{name="{metric}",run="{run}"}}'


@contextmanager
def exporting(*words: str | Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The exporter as a process, and its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rlvr.tracking.prometheus_exporter", *map(str, words), "--port", "0"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert "Serving the metrics" in said, said
        yield process, int(said.rsplit(":", 1)[1].partition("/")[0])
    finally:
        process.kill()
        process.communicate()


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


@pytest.mark.parametrize(
    ("text", "shown", "why"),
    [
        ("null", "nan", "a figure that could not be computed leaves a gap, not its last value"),
        ("NaN", "nan", "Python's JSON has it"),
        ("Infinity", "inf", "so has it this"),
        ("-Infinity", "-inf", "and this"),
        ("1e-05", "1e-05", "a learning rate"),
        ("3.0", "3.0", "a count"),
        ("true", None, "no figure"),
        ('"text"', None, "no figure"),
        ("[1]", None, "no figure"),
    ],
)
def test_values_are_written_in_prometheus_format(tmp_path: Path, text: str, shown: str | None, why: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1, "loss": 0.5}}\n{{"step": 2, "loss": {text}}}\n')
    found = samples(page_of(Exporter(tmp_path)))
    assert str(found[named("loss", tmp_path.name)]) == (shown or "0.5"), why


def test_new_lines_are_read_and_rare_metrics_stay(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    write(tmp_path / "r", {"step": 1, "loss": 1.0, "eval_accuracy": 0.5})
    assert samples(page_of(exporter))[named("step")] == 1
    write(tmp_path / "r", {"step": 2, "loss": 2.0})
    found = samples(page_of(exporter))
    assert found[named("step")] == 2 and found[named("loss")] == 2
    assert found[named("eval_accuracy")] == 0.5


def test_a_damaged_or_unfinished_line_is_passed_over(tmp_path: Path) -> None:
    run = write(tmp_path / "r", {"step": 1})
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'\xff\xfe\n[1]\n{"step": "x", "loss": 1}\n')
    write(run, {"step": 2}, {"step": 3, "loss": 1}, end="")
    found = samples(page_of(Exporter(tmp_path)))
    assert found[named("step")] == 2 and named("loss") not in found


def test_a_stale_run_is_left_out_until_it_goes_on(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    path = write(tmp_path / "r", {"step": 1}) / "metrics.jsonl"
    os.utime(path, (time.time() - 9000,) * 2)
    assert samples(page_of(exporter)) == {"grpo_training_runs": 0}
    write(tmp_path / "r", {"step": 2})
    assert samples(page_of(exporter))[named("step")] == 2


@pytest.mark.parametrize(
    ("content", "status", "why"),
    [
        ('{"format": 1, "status": "running"}', "running", "as run.json says"),
        ('{"format": 999, "status": "running"}', None, "of a later version"),
        ('{"format": 1, "sta', None, "half written"),
    ],
)
def test_the_status_is_that_of_run_json(tmp_path: Path, content: str, status: str | None, why: str) -> None:
    (write(tmp_path / "r", {"step": 1}) / "run.json").write_text(content)
    found = samples(page_of(Exporter(tmp_path)))
    statuses = [name for name in found if name.startswith("grpo_training_status")]
    assert statuses == ([f'grpo_training_status{{run="r",status="{status}"}}'] if status else []), why
    assert found[named("step")] == 1


@pytest.mark.slow
@given(figures=st.dictionaries(st.text(), st.none() | st.floats() | st.integers(-(2**70), 2**70), max_size=8))
def test_any_key_gives_a_valid_page(tmp_path_factory: pytest.TempPathFactory, figures: dict[str, float | None]) -> None:
    folder = tmp_path_factory.mktemp("runs")
    lines = page_of(Exporter(write(folder / "r", {**figures, "step": 1}))).split("\n")
    names = [line.rsplit(" ", 1)[0] for line in lines[:-1] if not line.startswith("# ")]
    assert all(SAMPLE.fullmatch(line) for line in lines[:-1] if not line.startswith("# "))
    assert len(names) == len(set(names)), "Prometheus rejects duplicates"
    shutil.rmtree(folder)


def test_the_process_serves_new_runs_and_ends_on_sigterm(tmp_path: Path) -> None:
    with exporting(tmp_path / "runs") as (process, port):
        assert "\ngrpo_training_runs 0.0\n" in get(port, "/metrics")[1]  # the folder does not exist yet
        write(tmp_path / "runs" / "r", {"step": 4})
        status, page = get(port, "/metrics")
        assert status == 200 and samples(page)[named("step")] == 4
        with socket.create_connection(("127.0.0.1", port)):  # an idle client blocks no other one
            assert get(port, "/metrics")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_port_that_is_in_use_exits_with_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        found = subprocess.run(
            [sys.executable, "-m", "rlvr.tracking.prometheus_exporter", str(tmp_path), "--port", port],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert found.returncode == 2 and f"port {port}: " in found.stderr and "Traceback" not in found.stderr
