"""Terminal output: messages, tables, colours and progress bars. Libraries print only their errors."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NoReturn, TextIO

LOG_INTERVAL_S = 60.0
SLOW_STEP_S = 2.0


def silence_libraries() -> None:
    """Turn off library messages that need no action, and busy waiting. Call before the libraries are imported.

    Environment variables that the user has set win: `TRANSFORMERS_VERBOSITY=info` shows all of transformers again.
    """
    defaults = {
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # TRL imports MLflow, which sends telemetry by default.
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Database migrations of a fresh MLflow store, forty lines at level INFO.
        "MLFLOW_LOGGING_LEVEL": "ERROR",
        # Idle threads of torch sleep. By default they spin, and take the cores from the threads that they wait for
        # where other processes run: a step took up to 15 times longer.
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    # On a CPU, every import of bitsandbytes looks for an optional kernel on the hub and logs that it is missing.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    # accelerate imports DeepSpeed wherever it is installed; without a GPU, DeepSpeed logs a warning.
    logging.getLogger("DeepSpeed").addFilter(lambda record: "Setting accelerator to" not in record.getMessage())
    # TRL prints a masked row with all its columns at each generation. rlvr/training/grpo_trainer.py reports the masks.
    logging.getLogger("trl.trainer.grpo_trainer").addFilter(
        lambda record: "All reward functions returned None" not in record.getMessage()
    )
    for category in (FutureWarning, DeprecationWarning, UserWarning):
        for module in ("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes", "mlflow", "deepspeed"):
            warnings.filterwarnings("ignore", category=category, module=rf"{module}(\.|$)")


def silence_loading_bars() -> None:
    """Turn off transformers' bar for reading weights from disk. Downloads keep theirs."""
    from huggingface_hub.utils import enable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    enable_progress_bars()


def is_main() -> bool:
    """Whether this process prints for the run: global rank 0, or the only process."""
    return int(os.environ.get("RANK", "0")) == 0


def is_terminal() -> bool:
    """Whether a progress bar can be shown. Pseudo-terminals of some launchers are 0 columns wide."""
    try:
        return sys.stderr is not None and sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (OSError, ValueError):
        return False


@contextmanager
def remembered_interrupts(*numbers: signal.Signals) -> Iterator[list[int]]:
    """Raise KeyboardInterrupt for these signals inside, and yield a list of those that arrived.

    Python drops an exception that is raised in a `__del__`, and a Ctrl-C with it; the list still has it. Signals that
    the caller handles already are left to it, and all of them outside the main thread.
    """
    received: list[int] = []

    def interrupt(number: int, frame: object) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt

    defaults = (signal.default_int_handler, signal.SIG_DFL)
    if threading.current_thread() is not threading.main_thread():
        numbers = ()
    before = {number: handler for number in numbers if (handler := signal.getsignal(number)) in defaults}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def are_installed(*packages: str) -> bool:
    """Whether packages can be imported; if not, say how to install this project."""
    found = all(importlib.util.find_spec(name) is not None for name in packages)
    if not found:
        error(
            f"The packages of this project are not installed for {sys.executable}. Run `make install` and "
            "`. .venv/bin/activate`, or `pip install -e . -c constraints.txt`."
        )
    return found


@contextmanager
def unused_packages_hidden(*names: str) -> Iterator[None]:
    """Let libraries find these packages only if they are imported already.

    Some import others wherever they are installed, which takes seconds of each start.
    """
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: the documented way to refuse an import
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def positive_int(text: str) -> int:
    """The type of a command-line option that is an integer from 1."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return int(text)


def positive_float(text: str) -> float:
    """The type of a command-line option that is a number above 0."""
    if not float(text) > 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return float(text)


def print_json(text: str) -> None:
    """Print JSON as it is, from the main process only."""
    if is_main():
        write(text, sys.stdout)


def info(text: str = "") -> None:
    """Print lines that fit the terminal, from the main process only."""
    if is_main():
        write(wrap(text, columns(sys.stdout)), sys.stdout)


def error(text: str) -> None:
    """Print to standard error, from the main process only: all ranks meet the same error."""
    if is_main():
        write(wrap(text, columns(sys.stderr)), sys.stderr)


def write(text: str, stream: TextIO | None) -> None:
    """Print lines as they are, above a progress bar; none to a closed stream, or a pipe whose reader has ended."""
    if stream is None:  # the process was started with the descriptor closed
        return
    tqdm = sys.modules.get("tqdm")  # not imported: there is no bar
    try:
        with tqdm.tqdm.external_write_mode(stream) if tqdm is not None else nullcontext():
            print(text, file=stream, flush=True)
    except BrokenPipeError:  # `head` ends early; docs.python.org/3/library/signal.html#note-on-sigpipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def columns(stream: TextIO | None) -> int:
    """The width of a terminal; 0 for a file, a pipe or a closed stream, whose lines are not wrapped."""
    return shutil.get_terminal_size((0, 0)).columns if stream is not None and stream.isatty() else 0


def wrap(text: str, width: int) -> str:
    """Break lines that are longer than the width, at spaces and with a hanging indent. A width of 0 breaks none.

    The indent of `  label    text` is that of its text.
    """
    lines = []
    for line in text.split("\n"):
        if not width or len(re.sub(r"\x1b\[\d+m", "", line)) <= width:
            lines.append(line)
            continue
        margin = line[: len(line) - len(line.lstrip())]
        label = re.match(r" *\S+( \S+)* {2,}(?=\S)", line)
        indent = " " * len(label[0]) if label and len(label[0]) < width / 2 else f"{margin}  "
        lines += textwrap.wrap(
            line.strip(),
            width,
            initial_indent=margin,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Fit the paragraphs of a description to the terminal. Indented lines, such as commands, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip("\n").split("\n\n")
        return "\n\n".join(
            paragraph if re.search("(?m)^ ", paragraph) else textwrap.fill(" ".join(paragraph.split()), width)
            for paragraph in paragraphs
        )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format an aligned text table: first column left-aligned, the others right-aligned.

    If the terminal is too narrow, the columns that don't fit follow below, after the first column again. A column whose
    title occurs several times, such as an interval, stays with the column before it.
    """
    widths = [max(len(str(row[column])) for row in (header, *rows)) for column in range(len(header))]
    groups: list[list[int]] = []
    for column in range(1, len(header)):
        if groups and header.count(header[column]) > 1:
            groups[-1].append(column)
        else:
            groups.append([column])
    blocks, room = [[0]], columns(sys.stdout)
    for group in groups:
        if room and len(blocks[-1]) > 1 and sum(widths[column] + 3 for column in blocks[-1] + group) - 1 > room:
            blocks.append([0])
        blocks[-1] += group

    def line(cells: Sequence[str], block: Sequence[int]) -> str:
        first, *others = block
        aligned = [cells[first].ljust(widths[first]), *(cells[column].rjust(widths[column]) for column in others)]
        return "  " + "   ".join(aligned).rstrip()

    rule = ["─" * width for width in widths]
    return "\n\n".join(
        "\n".join([line(header, block), dim(line(rule, block)), *(line(row, block) for row in rows)])
        for block in blocks
    )


def duration(seconds: float) -> str:
    """Format seconds: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def bold(text: str) -> str:
    return _coloured(text, "1")


def dim(text: str) -> str:
    return _coloured(text, "2")


def red(text: str) -> str:
    return _coloured(text, "31")


def _coloured(text: str, code: str) -> str:
    """Add a colour on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return f"\x1b[{code}m{text}\x1b[0m" if columns(sys.stdout) and not os.environ.get("NO_COLOR") else text


class SlowStep:
    """Print what a step does if it takes more than `after_s`, and again at twice, four times … the time.

    To standard error, from the main process only. `text` may be changed while the step runs.
    """

    def __init__(self, text: str, after_s: float = SLOW_STEP_S) -> None:
        self.text = text
        self.after_s = after_s
        self._ended = threading.Event()

    def __enter__(self) -> SlowStep:
        threading.Thread(target=self._report, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _report(self) -> None:
        wait_s = elapsed_s = self.after_s
        while not self._ended.wait(wait_s):
            error(f"{self.text} … ({duration(elapsed_s)})")
            wait_s, elapsed_s = elapsed_s, 2 * elapsed_s


class ProgressBar:
    """Count processed rows: a tqdm bar on a terminal, a line a minute in a log. Silent outside the main process.

    A bar without a description is not shown on a terminal.
    """

    def __init__(self, description: str, rows: int) -> None:
        from tqdm import tqdm

        self._on_terminal = is_main() and is_terminal()
        hidden = not (self._on_terminal and rows and description)
        self._bar = tqdm(total=rows, desc=description, unit="row", leave=False, disable=hidden)
        self._description, self._rows = description, rows
        self._done = self._skipped = 0
        self._started = self._last_line = time.monotonic()

    def skip(self, rows: int) -> None:
        """Count rows that an earlier process did. They don't enter the estimate of the time left."""
        self._skipped = rows
        self._done += rows
        self._bar.update(rows)

    def update(self, rows: int) -> None:
        self._bar.update(rows)
        self._done += rows
        now = time.monotonic()
        if not self._on_terminal and now - self._last_line > LOG_INTERVAL_S:
            self._last_line = now
            left = (now - self._started) / (self._done - self._skipped) * (self._rows - self._done)
            info(f"  {self._description}: {self._done:,} of {self._rows:,} rows, {duration(left)} left")

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
