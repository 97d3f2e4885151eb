"""Output fits the terminal, and signals and imports behave."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from tqdm import tqdm

from rlvr import console

REPOSITORY = Path(__file__).resolve().parents[2]


HEADER = ["", "base", "95 % interval", "trained", "95 % interval", "math_correctness", "answer_format", "tokens"]
ROWS = [[name, "24.4 %", "19.5 … 30.1", "94.0 %", "90.3 … 96.3", "0.94", "1.00", "31"] for name in ("all", "a source")]
SENTENCE = "  trained − base: +69.6 points (95 % interval +62.9 … +75.2); " * 2 + "/a/long/path/that/stays-whole"
PROGRAM = f"from rlvr import console; console.info(console.table({HEADER}, {ROWS})); console.info(); "
PROGRAM += f"console.info({SENTENCE!r}); console.error({SENTENCE!r})"


def printed(width: int) -> list[str]:
    """The lines that a program prints on a terminal of so many columns."""
    terminal, its_end = pty.openpty()
    termios.tcsetwinsize(its_end, (24, width))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "RANK")}
    environment["PYTHONPATH"] = str(REPOSITORY)
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=its_end, stderr=its_end, cwd=REPOSITORY, env=environment) as process:
        os.close(its_end)
        output = b""
        while True:
            try:
                output += os.read(terminal, 1 << 16)
            except OSError:  # the terminal's other end is closed
                break
    os.close(terminal)
    assert process.returncode == 0, output.decode()
    return re.sub(r"\x1b\[\d+m", "", output.decode()).replace("\r", "").splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_and_sentences_fit_the_terminal(width: int) -> None:
    lines = printed(width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    *blocks, sentences = text.split("\n\n")
    assert sum(block.count("24.4 %") for block in blocks) == sum(block.count("1.00") for block in blocks) == 2
    for block in blocks:
        rows = block.splitlines()
        assert [row.split("  ")[1].strip() for row in rows[2:]] == ["all", "a source"], "each block names its rows"
        intervals = [match.start() for match in re.finditer("95 % interval", rows[0])]
        for at, model in zip(intervals, re.findall("base|trained", rows[0]), strict=True):
            assert rows[0].rindex(model, 0, at) > 0, "an interval stays with its model"
    assert sentences.count("/a/long/path/that/stays-whole") == 2, "a path is never broken"
    assert all(line.startswith("    ") for line in sentences.splitlines() if not line.startswith("  trained"))


def test_a_line_is_printed_above_a_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with tqdm(total=2):
        console.error("a line")
    before = capsys.readouterr().err.partition("a line\n")[0]
    assert "0/2" in before and not before.rpartition("\r")[2].strip(), "the bar is cleared"


@pytest.mark.parametrize(
    ("line", "wrapped", "why"),
    [
        ("  cost   2 dollars an hour", "  cost   2 dollars an\n         hour", "below the text"),
        ("  a long sentence that wraps", "  a long sentence that\n    wraps", "below the sentence"),
        ("    https://a.long.address/x/y", "    https://a.long.address/x/y", "an address keeps its margin"),
        ("  a label that is long   text", "  a label that is long\n    text", "no room for the text"),
    ],
)
def test_a_broken_line_keeps_its_indent(line: str, wrapped: str, why: str) -> None:
    assert console.wrap(line, 24) == wrapped, why


def test_a_pipe_gets_whole_lines() -> None:
    environment = {**os.environ, "COLUMNS": "40"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment)
    assert SENTENCE in done.stdout.splitlines() and SENTENCE in done.stderr.splitlines()
    assert len(done.stdout.split("\n\n")) == 2, "one table"


def test_a_reader_that_ends_early_stops_neither_the_program_nor_its_exit_code(tmp_path: Path) -> None:
    program = "from rlvr import console; [console.info('line ' * 99) for _ in range(9999)]; "
    program += f"open({str(tmp_path / 'end')!r}, 'w')"
    command = f'set -o pipefail; "{sys.executable}" -c "{program}" | head -1'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=REPOSITORY)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)
    assert (tmp_path / "end").exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_ctrl_c_that_python_drops_is_remembered() -> None:
    class Dropped:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores the signal
    try:
        with console.remembered_interrupts(signal.SIGINT) as received:
            dropped = Dropped()
            del dropped
            assert received == [signal.SIGINT]
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_package_that_nobody_has_imported_is_hidden_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rarely_used.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with console.unused_packages_hidden("rarely_used", "pytest"):
        assert importlib.util.find_spec("rarely_used") is None and importlib.util.find_spec("pytest") is not None
        with pytest.raises(ImportError):
            importlib.import_module("rarely_used")
    assert importlib.util.find_spec("rarely_used") is not None
