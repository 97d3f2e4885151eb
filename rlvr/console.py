"""What a person sees in the terminal: our own lines, aligned and few; other libraries only when they have bad news."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Sequence


def silence_libraries() -> None:
    """Silences what libraries say that a reader would have to ignore. Call before they are imported.

    A variable that the user has set wins, so `TRANSFORMERS_VERBOSITY=info` brings everything of transformers back.
    """
    defaults = {
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # TRL imports MLflow, which would tell its makers so.
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Database migrations of a fresh MLflow store, forty lines at level INFO.
        "MLFLOW_LOGGING_LEVEL": "ERROR",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    # Emitted at every import on a CPU: bitsandbytes looks for an optional faster kernel on the hub and goes on without.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    # DeepSpeed is imported by accelerate wherever it is installed, and without a GPU warns that there is none.
    logging.getLogger("DeepSpeed").addFilter(lambda record: "Setting accelerator to" not in record.getMessage())
    # TRL would print a masked row with all its columns at each generation; rlvr/training/grpo_trainer.py says what is
    # masked and why.
    logging.getLogger("trl.trainer.grpo_trainer").addFilter(
        lambda record: "All reward functions returned None" not in record.getMessage()
    )
    for category in (FutureWarning, DeprecationWarning, UserWarning):
        for module in ("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes", "mlflow", "deepspeed"):
            warnings.filterwarnings("ignore", category=category, module=rf"{module}(\.|$)")


def silence_loading_bars() -> None:
    """Turns off transformers' bar for reading weights from disk; downloads keep theirs."""
    from huggingface_hub.utils import enable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    enable_progress_bars()


def is_main() -> bool:
    """Whether this process speaks for the run (global rank 0, or the only one)."""
    return int(os.environ.get("RANK", "0")) == 0


def is_terminal() -> bool:
    """Whether a bar can be shown: not in the pseudo-terminals of some launchers, which are 0 columns wide."""
    try:
        return sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (OSError, ValueError):
        return False


def info(text: str = "") -> None:
    """Prints a line, from the main process only."""
    if is_main():
        print(text, flush=True)


def error(text: str) -> None:
    """Prints an error to standard error; from the main process only, since all ranks find the same fault."""
    if is_main():
        print(text, file=sys.stderr, flush=True)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An aligned text table; the first column is set left, the others right."""
    widths = [max(len(str(row[column])) for row in (header, *rows)) for column in range(len(header))]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "   ".join(cells).rstrip())
    lines.insert(1, "  " + "   ".join("─" * width for width in widths))
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Seconds as a person says them: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def bold(text: str) -> str:
    return _painted(text, "1")


def dim(text: str) -> str:
    return _painted(text, "2")


def red(text: str) -> str:
    return _painted(text, "31")


def _painted(text: str, code: str) -> str:
    """The text in a colour, on a terminal whose user wants some (https://no-color.org)."""
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text
