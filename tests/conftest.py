"""What every test shares: no network, one thread, MLflow away from the repository, runners for scripts and launches."""

from __future__ import annotations

import fcntl
import functools
import gc
import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import launching
from tests.support.launching import Start

# A machine that is busy otherwise draws examples slowly, which says nothing about what is tested.
settings.register_profile("any machine", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("any machine")

# Compiled once for all processes: an image may say otherwise.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Before any test imports a library that reads them.
os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    OMP_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="false",
    TRANSFORMERS_VERBOSITY="error",
    GRPO_RECIPES_ANSWERS="",  # no test gets its answers from another one, or from the user's runs
    TORCHDYNAMO_DISABLE="1",  # nothing is compiled here, and every process would import the compiler for two seconds
)

REPOSITORY = Path(__file__).resolve().parents[1]
TINY_MODEL = REPOSITORY / "models" / "tiny-arithmetic"
IMPORTED: list[int] = []  # the number of modules at each `gc.freeze()`

Run = Callable[..., subprocess.CompletedProcess[str]]
Command = Callable[..., list[str]]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leaves the garbage collector alone while everything is imported, and what was imported out of its walks.

    Whatever trains or evaluates collects several times, and would walk through torch and TRL each time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        IMPORTED.append(len(sys.modules))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Keeps the collector out of what tests import later, too."""
    if len(sys.modules) > IMPORTED[-1] + 100:
        gc.collect()
        gc.freeze()
        IMPORTED.append(len(sys.modules))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the files first that have the largest share of slow tests: short ones then fill what is left at the end."""
    tests: dict[Path, list[bool]] = {}
    for item in items:
        tests.setdefault(item.path, []).append(item.get_closest_marker("slow") is not None)
    items.sort(key=lambda item: -sum(tests[item.path]) / len(tests[item.path]))


@pytest.fixture
def run_script() -> Run:
    """Runs a script of the repository as a user would, and returns what it printed and its exit code."""

    def run(
        *words: str | Path, env: Mapping[str, str] | None = None, timeout: float = 900, cwd: Path = REPOSITORY
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def call_main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Calls the `main` of a script in this process, and returns what `run_script` does.

    For tests of what a script does; what it imports, or prints while it does, is seen only by `run_script`.
    """

    def call(
        main: Callable[[list[str]], int], *words: str | Path, cwd: Path, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        capsys.readouterr()
        code = main([*map(str, words)])
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, printed.out, printed.err)

    return call


def environment_of_a_user() -> dict[str, str]:
    """The environment without what only makes the tests quicker and quieter."""
    ours = ("TRANSFORMERS_VERBOSITY", "TORCHDYNAMO_DISABLE")
    return {key: value for key, value in os.environ.items() if key not in ours}


@pytest.fixture(scope="session")
def prefork(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of the prefork server (tests/support/prefork.py), one for all processes of the tests.

    The first process that needs it starts it. It ends with the last one, since its standard input is a pipe that all
    of them hold open.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all processes
    path, pipe = folder / "prefork", folder / "prefork.pipe"
    with (folder / "prefork.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not pipe.exists():
            os.mkfifo(pipe)
        held = os.open(pipe, os.O_RDWR)
        if not is_ready(path):
            path.unlink(missing_ok=True)
            with pipe.open() as until, (folder / "prefork.log").open("w") as log:
                process = subprocess.Popen(
                    [sys.executable, str(REPOSITORY / "tests" / "support" / "prefork.py"), str(path)],
                    env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
                    stdin=until,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the tests.
                )
            while not is_ready(path):
                assert process.poll() is None, (folder / "prefork.log").read_text()
                time.sleep(0.1)
    yield path
    os.close(held)


def is_ready(prefork: Path) -> bool:
    """Whether the prefork server answers an empty request: one that is about to end doesn't."""
    with socket.socket(socket.AF_UNIX) as connection:
        if connection.connect_ex(str(prefork)) != 0:
            return False
        connection.shutdown(socket.SHUT_WR)
        return bool(connection.recv(1))


@pytest.fixture(scope="session")
def start(prefork: Path) -> Start:
    """`tests.support.launching.start` with a prefork server."""
    return functools.partial(launching.start, prefork)


@pytest.fixture(scope="session")
def command(prefork: Path) -> Command:
    """The command that runs a script of the repository as a process of its own, without importing everything again.

    For tests of what such a process does; what it imports, or prints while it does, is seen only by `run_script`.
    """
    return functools.partial(launching.prefork_command, prefork)


@pytest.fixture
def without_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs in this process end without report.html, which takes as long as a few steps of the tiny model."""
    monkeypatch.setattr("rlvr.run.write_report", lambda folder: folder / "report.html")


@pytest.fixture
def write_yaml(tmp_path: Path) -> Callable[..., Path]:
    """Writes a recipe file and returns its path."""

    def write(text: str, name: str = "recipe.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def gsm8k_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the two files of the real GSM8K, which lie beside the repository; skips where they are absent."""
    data, folder = REPOSITORY.parent / "shared" / "data", tmp_path_factory.mktemp("gsm8k")
    for name in ("gsm8k_train.jsonl", "gsm8k_test.jsonl"):
        if not (data / name).is_file():
            pytest.skip(f"the real GSM8K is not on this machine ({name} in ../shared/data)")
        (folder / name).symlink_to(data / name)
    return folder


@pytest.fixture(scope="session")
def word_problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the form of GSM8K's files, with short problems of our own."""
    folder = tmp_path_factory.mktemp("word-problems")
    for split, numbers in (("train", range(2, 120)), ("test", range(300, 312))):
        rows = [{"question": f"What is {n} and {n}?", "answer": f"{n} + {n} = {2 * n}.\n#### {2 * n}"} for n in numbers]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
