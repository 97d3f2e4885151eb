"""Processes, threads, forks, files and memory of the judge."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr import sandbox
from rlvr.errors import InputError
from rlvr.sandbox.languages import compiler_path, find_language
from rlvr.verifiers.code import Limits, Submission, close, executor_count, judge, judge_many
from rlvr.verifiers.code.problems import validate_rows
from tests.support.input_errors import input_error
from tests.support.judged_programs import ADD, ADD_CPP, ONE, SUMS, verdicts
from tests.support.processes import children, command_line, wait_until


@pytest.mark.slow
def test_a_small_batch_does_not_wait_for_a_large_one_of_another_thread() -> None:
    spin = "import time\nx = time.process_time()\nwhile time.process_time() - x < 0.1: pass\nprint(1)\n#"
    ended: dict[str, float] = {}

    def run(name: str, count: int) -> None:
        judged = judge_many([Submission(f"{spin}{name}{i}", "python", ONE) for i in range(count)])
        assert all(judgement.score == 1 for judgement in judged)
        ended[name] = time.monotonic()

    large = threading.Thread(target=run, args=("large", 16 * executor_count()))
    large.start()
    time.sleep(0.2)
    run("small", 2)
    large.join()
    assert ended["small"] < ended["large"]


def _judge_in_a_fork(queue: multiprocessing.Queue) -> None:
    queue.put(verdicts(ADD, tests=SUMS))


def test_a_forked_process_starts_its_own_judge() -> None:
    assert verdicts(ADD, tests=SUMS) == ["AC", "AC"]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_judge_in_a_fork, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    assert [queue.get(timeout=300) for _ in children] == [["AC", "AC"]] * 2
    for child in children:
        child.join(100)
        assert child.exitcode == 0
    assert verdicts(ADD, tests=SUMS) == ["AC", "AC"], "and the parent's still works"


@pytest.mark.slow
def test_the_judge_works_after_a_fork_of_a_process_with_torch() -> None:
    code = f"""
        import os, torch
        torch.randn(200, 200) @ torch.randn(200, 200)
        from rlvr.verifiers.code import judge
        child = os.fork()
        if child == 0:
            judged = judge({ADD!r}, language="python", tests={SUMS!r})
            os._exit(0 if judged.score == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        print(judge({ADD!r}, language="python", tests={SUMS!r}).verdicts)
    """
    process = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300)
    assert process.stdout.strip() == "['AC', 'AC']", process.stderr


GUEST = Path(sandbox.__file__).parent / "guest"


def _judging(judge: int) -> tuple[list[int], list[int]]:
    """The fork servers of a judging process, and their programs."""
    zygotes = children(judge)
    return zygotes, [program for zygote in zygotes for program in children(zygote)]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["exit", "exception", "kill", "interrupt"])
def test_no_process_is_left_however_the_judging_process_ends(ending: str) -> None:
    code = f"""
        import os, signal, sys, threading, time
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts with & ignores it
        from rlvr.verifiers.code import judge, judge_many, Submission, Limits
        judge({ADD!r}, language="python", tests={SUMS!r})
        judge({ADD_CPP!r}, language="cpp", tests={SUMS!r})
        print("ready", flush=True)
        if {ending!r} == "exit":
            sys.exit(0)
        if {ending!r} == "exception":
            raise RuntimeError
        judge_many([Submission("import time; time.sleep(999)#%d" % i, "python", {ONE!r}, limits=Limits(wall_s=999))
                    for i in range(4)])
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    zygotes, programs = _judging(process.pid)
    deadline = time.monotonic() + 60
    while ending in ("kill", "interrupt") and not programs:
        assert time.monotonic() < deadline, "programs are running"
        zygotes, programs = _judging(process.pid)
    if ending == "kill":
        process.kill()
    elif ending == "interrupt":
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)  # and not after the 999 s of the programs
    if ending == "interrupt":
        assert process.returncode in (-signal.SIGINT, 130, 1)
    wait_until(lambda: not [child for child in zygotes + programs if Path(f"/proc/{child}").exists()])


def test_a_program_whose_parent_ended_before_it_could_tell_the_kernel_ends_too() -> None:
    """Else a program that was being started when its judge was killed would run without a limit of time."""
    code = f"""
        import os, sys, time
        sys.path.insert(0, {str(GUEST)!r})
        import confinement
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            parent = os.getpid()
            if os.fork() == 0:
                while os.getppid() == parent:
                    time.sleep(0.01)
                confinement.end_with_parent(parent)
                os.write(write, b"it goes on")
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        print(os.read(read, 100))
    """
    process = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300)
    assert process.stdout == "b''\n", process.stderr


@pytest.mark.slow
def test_thousands_of_runs_leak_no_descriptor_process_file_or_memory(temporary_folder: Path) -> None:
    batch = [Submission(f"print(1)#{i}", "python", ONE) for i in range(400)]

    def footprint() -> tuple[int, int, int]:
        files = len(list(temporary_folder.rglob("*")))
        return len(os.listdir("/proc/self/fd")), len(children(os.getpid())), files

    judge_many(batch)
    before = footprint()
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    for _ in range(4):
        judge_many(batch)
    assert all(now <= then for now, then in zip(footprint(), before, strict=True)), (before, footprint())
    growth_mb = (int(Path("/proc/self/statm").read_text().split()[1]) - resident) * os.sysconf("SC_PAGE_SIZE") / 2**20
    assert growth_mb < 8, f"{growth_mb:.1f} MB"


@pytest.fixture
def temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files that programs' own users can reach too."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    close()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    close()
    shutil.rmtree(folder)


@pytest.mark.slow
def test_closing_removes_the_working_folder(temporary_folder: Path) -> None:
    assert verdicts(ADD_CPP, language="cpp", tests=SUMS) == ["AC", "AC"]
    assert list(temporary_folder.glob("grpo-recipes-compile-*"))
    close()
    assert not list(temporary_folder.iterdir())
    assert verdicts(ADD, tests=SUMS) == ["AC", "AC"]


@pytest.mark.slow
def test_a_temporary_folder_that_only_its_owner_reaches_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    close()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert verdicts(ADD_CPP, language="cpp", tests=SUMS) == ["AC", "AC"]
    close()


@pytest.fixture
def disk(temporary_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The disk of temporary files: a little larger than what the judge wants to be free for a compiler."""
    folder = temporary_folder / "disk"
    folder.mkdir(mode=0o755)
    mounting = ["mount", "-t", "tmpfs", "-o", "size=80m,mode=755", "tmpfs", str(folder)]
    if subprocess.run(mounting, capture_output=True).returncode != 0:
        pytest.skip("no small disk can be mounted here")
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    close()
    subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path, spare: int = 0) -> None:
    """Fill the disk except this many bytes."""
    about = os.statvfs(disk)
    # If a compiler was faster, the disk is as full.
    with (disk / "filler").open("wb") as file, contextlib.suppress(OSError):
        os.posix_fallocate(file.fileno(), 0, about.f_bavail * about.f_frsize - spare)


@pytest.mark.parametrize(("in_use", "spare"), [(False, 0), (True, 0), (True, 1 << 16)])
def test_a_full_disk_is_a_sandbox_failure_until_there_is_space(disk: Path, in_use: bool, spare: int) -> None:
    if in_use:
        assert verdicts(f"{ADD_CPP}// before {spare}", language="cpp", tests=SUMS) == ["AC", "AC"]
    fill(disk, spare)
    judgement = judge(f"{ADD_CPP}// {spare}", language="cpp", tests=SUMS)
    assert judgement.verdicts == ["SE", "SE"] and judgement.sandbox_failed
    assert "no space left" in judgement.reasons[0].lower()
    assert verdicts(f"{ADD}# {spare}", tests=SUMS) == ["AC", "AC"], "Python needs no disk"
    (disk / "filler").unlink()
    assert verdicts(f"{ADD_CPP}// {spare}", language="cpp", tests=SUMS) == ["AC", "AC"]


@pytest.mark.slow
def test_a_disk_that_is_full_for_moments_makes_no_right_program_wrong(disk: Path) -> None:
    done = threading.Event()

    def others() -> None:
        while not done.wait(0.03):
            fill(disk)
            done.wait(0.03)
            (disk / "filler").unlink()

    thread = threading.Thread(target=others)
    thread.start()
    try:
        judged = judge_many([Submission(f"{ADD_CPP}// {row}", "cpp", SUMS) for row in range(4)])
    finally:
        done.set()
        thread.join()
    assert {tuple(judgement.verdicts) for judgement in judged} <= {("AC", "AC"), ("SE", "SE")}
    assert verdicts(f"{ADD_CPP}// at last", language="cpp", tests=SUMS) == ["AC", "AC"]


@pytest.mark.slow
def test_the_folder_of_a_killed_judge_is_removed_by_the_next(temporary_folder: Path) -> None:
    left = temporary_folder / "grpo-recipes-compile-abcd1234"
    left.mkdir()
    (left / "program.cpp").write_text("int main() {}")
    os.utime(left, (time.time() - 60, time.time() - 60))
    assert verdicts(ADD_CPP, language="cpp", tests=SUMS) == ["AC", "AC"]
    assert not left.exists()


@pytest.mark.slow
def test_verdicts_do_not_change_when_the_machine_is_busy() -> None:
    half = "import time\nx = time.process_time()\nwhile time.process_time() - x < 0.25: pass\nprint(1)\n"
    programs = [half, half.replace("0.25", "3"), "print(1)", "import time; time.sleep(0.3); print(1)"]
    expected = [["AC"], ["TLE"], ["AC"], ["AC"]]
    limits = Limits(time_s=0.5, wall_s=20.0)

    def judge_all() -> list[list[str]]:
        return [j.verdicts for j in judge_many([Submission(p, "python", ONE, limits=limits) for p in programs])]

    assert judge_all() == expected
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        for _ in range(2):
            assert judge_all() == expected
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_the_pause_of_a_machine_is_no_idle_time() -> None:
    def pause() -> None:
        time.sleep(0.5)
        processes = children(os.getpid())
        watchdogs = [process for process in processes if "watchdog.py" in command_line(process)]
        paused = [*watchdogs, *(program for zygote in processes for program in children(zygote))]
        assert len(paused) > len(watchdogs), "the program runs"
        for number, seconds in ((signal.SIGSTOP, 3), (signal.SIGCONT, 0)):
            for process in paused:
                os.kill(process, number)
                time.sleep(0.1)
            time.sleep(seconds)

    verdicts(ADD, tests=SUMS)
    thread = threading.Thread(target=pause)
    thread.start()
    assert verdicts("import time\ntime.sleep(2)\nprint(1)", limits=Limits(wall_s=2.5)) == ["AC"]
    thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("script", ["zygote.py", "watchdog.py"])
def test_a_killed_process_of_the_judge_is_replaced(script: str) -> None:
    program = f"import time\ntime.sleep(0.2)\n{ADD}"  # so long that the watchdog looks
    verdicts(program, tests=SUMS)
    for process in children(os.getpid()):
        if script in command_line(process):
            os.kill(process, signal.SIGKILL)
    assert verdicts(program, tests=SUMS) == ["AC", "AC"]


def test_a_missing_compiler_is_reported_with_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with input_error("compiler-missing", match=r"Install g\+\+"):
        judge(ADD_CPP, language="cpp", tests=SUMS)


@pytest.fixture
def broken_rustc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A compiler that is in PATH and compiles nothing, as one whose files only its owner can read."""
    compiler = tmp_path / "rustc"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("rlvr.sandbox.compiler._working", set())
    return compiler


def test_a_compiler_that_compiles_nothing_is_no_fault_of_the_program(broken_rustc: Path) -> None:
    with pytest.raises(InputError, match="no program in rust") as error:
        judge("fn main() {}", language="rust", tests=ONE)
    assert error.value.kind == "compiler-incomplete" and str(broken_rustc) in str(error.value)


@pytest.mark.usefixtures("broken_rustc")
def test_a_compiler_that_compiles_nothing_is_found_before_training() -> None:
    with pytest.raises(InputError, match="no program in rust"):
        validate_rows(tests=[[{"input": "", "output": "1"}]], language="rust")


RUST = """
use std::io::Read;
fn main() {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).unwrap();
    let numbers: Vec<i64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    println!("{}", numbers.iter().sum::<i64>());
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        (RUST, "AC"),
        ('fn main() { println!("{}", vec![1u8; 600 << 20][5]); }', "MLE"),
        ('fn main() { let none: Vec<i32> = vec![]; println!("{}", none[5]); }', "RE"),
        ("fn main() { unknown }", "CE"),
    ],
)
def test_programs_in_rust(program: str, verdict: str) -> None:
    try:
        compiler = compiler_path(find_language("rust"))
    except InputError as error:
        pytest.skip(str(error))
    if os.geteuid() == 0 and Path(compiler).is_relative_to(Path.home()):
        pytest.skip(f"{compiler} is in a home that other users, as which programs are compiled, can't read")
    judgement = judge(program, language="rust", tests=SUMS[:1], limits=Limits(memory_mb=256))
    assert judgement.verdicts == [verdict], (judgement.reasons, judgement.compile_output)
