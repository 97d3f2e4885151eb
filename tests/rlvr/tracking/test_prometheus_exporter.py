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

from rlvr.tracking.prometheus_exporter import HELP, Exporter, metric_of

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
    ("figure", "sample", "why"),
    [
        ("reward", 'grpo_training_reward{run="r",statistic="mean"}', "TRL's name for the mean has none in it"),
        ("reward_std", 'grpo_training_reward{run="r",statistic="std"}', "an underscore"),
        ("reward/max", 'grpo_training_reward{run="r",statistic="max"}', "a slash"),
        ("rewards/a/mean", 'grpo_training_reward_part{reward="a",run="r",statistic="mean"}', "one reward"),
        ("rewards/a/b/std", 'grpo_training_reward_part{reward="a/b",run="r",statistic="std"}', "a slash in its name"),
        ("rewards/unscored_fraction", 'grpo_training_unscored_ratio{run="r"}', "not a reward of that name"),
        ("completions/mean_terminated_length", 'grpo_training_ended_completion_tokens{run="r",statistic="mean"}', "it"),
        ("completions/mean_length", 'grpo_training_completion_tokens{run="r",statistic="mean"}', "not the one above"),
        ("time/rewards", 'grpo_training_phase_seconds{phase="rewards",run="r"}', "seconds are Prometheus' unit"),
        ("policy_kl", 'grpo_training_kl_nats{reference="generating policy",run="r"}', "two distances, one metric"),
        ("kl", 'grpo_training_kl_nats{reference="starting model",run="r"}', "the other one"),
        ("clip_ratio/low_min", 'grpo_training_clipped_tokens_ratio{run="r",side="low",statistic="min"}', "two labels"),
        (
            "code_execution/verdict_ac",
            'grpo_training_verdict_ratio{reward="code_execution",run="r",verdict="AC"}',
            "AC",
        ),
        ("eval_gsm8k/accuracy", 'grpo_training_validation_source_accuracy_ratio{run="r",source="gsm8k"}', "a source"),
        ("eval_accuracy", 'grpo_training_validation_accuracy_ratio{run="r"}', "all sources"),
        ("my/own", 'grpo_training_figure{figure="my/own",run="r"}', "what a reward logs has no name here"),
        ('a"b\\c\nd', 'grpo_training_figure{figure="a\\"b\\\\c\\nd",run="r"}', "as Prometheus escapes it"),
    ],
)
def test_a_key_becomes_a_metric_with_labels(tmp_path: Path, figure: str, sample: str, why: str) -> None:
    page = page_of(Exporter(write(tmp_path / "r", {"step": 1, figure: 0.25})))
    assert f"\n{sample} 0.25\n" in page, why


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
    assert str(found[f'grpo_training_loss{{run="{tmp_path.name}"}}']) == (shown or "0.5"), why


def test_new_lines_are_read_and_rare_metrics_stay(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    write(tmp_path / "r", {"step": 1, "loss": 1.0, "eval_accuracy": 0.5})
    assert samples(page_of(exporter))['grpo_training_step{run="r"}'] == 1
    write(tmp_path / "r", {"step": 2, "loss": 2.0})
    found = samples(page_of(exporter))
    assert found['grpo_training_step{run="r"}'] == 2 and found['grpo_training_loss{run="r"}'] == 2
    assert found['grpo_training_validation_accuracy_ratio{run="r"}'] == 0.5


def test_an_incomplete_line_is_read_later(tmp_path: Path) -> None:
    exporter = Exporter(write(tmp_path / "r", {"step": 1}))
    with (tmp_path / "r" / "metrics.jsonl").open("a") as file:
        for part, step in (('{"step": 2, "lo', 1), ('ss": 1.0}', 1), ("\n", 2)):
            file.write(part)
            file.flush()
            assert samples(page_of(exporter))['grpo_training_step{run="r"}'] == step


def test_a_line_that_is_no_json_is_passed_over(tmp_path: Path) -> None:
    run = write(tmp_path / "r", {"step": 1})
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'\xff\xfe\n[1]\n{"step": "x", "loss": 1}\n')
    write(run, {"step": 2})
    found = samples(page_of(Exporter(tmp_path)))
    assert found['grpo_training_step{run="r"}'] == 2 and 'grpo_training_loss{run="r"}' not in found


def test_a_run_that_begins_anew_has_no_figures_of_the_one_before(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    write(tmp_path / "r", {"step": 9, "eval_accuracy": 0.5})
    page_of(exporter)
    (tmp_path / "r").rename(tmp_path / "r.older")
    write(tmp_path / "r", {"step": 1}, *({"step": step, "loss": 0.5} for step in range(2, 9)))  # longer than it was
    found = samples(page_of(exporter))
    assert found['grpo_training_step{run="r"}'] == 8
    assert 'grpo_training_validation_accuracy_ratio{run="r"}' not in found
    assert found['grpo_training_step{run="r.older"}'] == 9


def test_a_resumed_run_goes_back_to_its_checkpoint(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path)
    run = write(tmp_path / "r", {"step": 1}, {"step": 2}, {"step": 3, "kl": 1.0})
    page_of(exporter)
    (run / "metrics.jsonl").write_text('{"step": 1}\n')
    found = samples(page_of(exporter))
    assert found['grpo_training_step{run="r"}'] == 1 and not any("kl" in name for name in found)


def test_a_stale_run_is_left_out_until_it_goes_on(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path, stale_after_s=60)
    path = write(tmp_path / "r", {"step": 1}) / "metrics.jsonl"
    os.utime(path, (time.time() - 90,) * 2)
    assert samples(page_of(exporter)) == {"grpo_training_runs": 0}
    write(tmp_path / "r", {"step": 2})
    assert samples(page_of(exporter))['grpo_training_step{run="r"}'] == 2


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
    assert found['grpo_training_step{run="r"}'] == 1


@given(figures=st.dictionaries(st.text(), st.none() | st.floats() | st.integers(-(2**70), 2**70), max_size=8))
def test_any_key_gives_a_valid_page(tmp_path_factory: pytest.TempPathFactory, figures: dict[str, float | None]) -> None:
    folder = tmp_path_factory.mktemp("runs")
    lines = page_of(Exporter(write(folder / "r", {**figures, "step": 1}))).split("\n")
    names = [line.rsplit(" ", 1)[0] for line in lines[:-1] if not line.startswith("# ")]
    assert all(SAMPLE.fullmatch(line) for line in lines[:-1] if not line.startswith("# "))
    assert len(names) == len(set(names)), "Prometheus rejects duplicates"
    shutil.rmtree(folder)


def test_every_documented_metric_has_a_name_and_a_help_text() -> None:
    page = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
    metrics = {figure: metric_of(figure)[0] for figure in re.findall(r"</a>`([^`]+)`", page)}
    assert len(metrics) > 20 and set(metrics.values()) <= set(HELP)


def test_the_process_serves_new_runs_and_ends_on_sigterm(tmp_path: Path) -> None:
    with exporting(tmp_path / "runs") as (process, port):
        assert get(port, "/metrics")[1].endswith("grpo_training_runs 0.0\n")  # the folder does not exist yet
        write(tmp_path / "runs" / "r", {"step": 4})
        status, page = get(port, "/metrics")
        assert status == 200 and samples(page)['grpo_training_step{run="r"}'] == 4
        with socket.create_connection(("127.0.0.1", port)):  # an idle client blocks no other one
            assert get(port, "/metrics")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_wrong_arguments_exit_with_2(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, said in (
            ((file,), "is a file"),
            ((tmp_path, "--port", port), f"port {port}: "),
        ):
            found = subprocess.run(
                [sys.executable, "-m", "rlvr.tracking.prometheus_exporter", *map(str, words)],
                cwd=REPOSITORY,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert found.returncode == 2 and said in found.stderr and "Traceback" not in found.stderr
