#!/usr/bin/env python
"""Export a finished run as a model that others can use, and measure the export on the rows of the run.

    python scripts/export.py runs/NAME --to merged --out exports/NAME                        # transformers, vLLM
    python scripts/export.py runs/NAME --to gguf --out exports/NAME-gguf                     # llama.cpp
    python scripts/export.py runs/NAME --to gguf --quantization q8_0,q4_k_m --out exports/q
    python scripts/export.py runs/NAME --to adapter --out exports/NAME-adapter               # PEFT, vLLM

The export is loaded as a user loads it, and answers the held-out rows of the run with the same prompts, decoding and
verifier. DIR/export.json has each file's sha256 and the paired difference. An export that is worse than chance allows
is refused. docs/export-publish.md describes what is written and the limits.

Exit codes: 0 written; 1 refused, since it is worse than the run; 2 the run, the base or an option is wrong; 130
interrupted. Nothing is left behind unless it is 0.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.errors import InputError, disk_full
from rlvr.formatting import percent, points

if TYPE_CHECKING:
    from rlvr.artifacts.export_record import ExportRecord, Remeasurement


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=console.HelpFormatter, allow_abbrev=False)
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="output_dir of a run")
    parser.add_argument("--to", required=True, choices=["merged", "gguf", "adapter"], help="what to write")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to write; it must not exist")
    parser.add_argument("--quantization", metavar="q8_0,q4_k_m", help="of --to gguf: one file for each")
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16", "float16"], help="of merged weights; default: that of the run"
    )
    parser.add_argument(
        "--rows", type=console.positive_int, metavar="N", help="measure the first N rows only, a weaker check"
    )
    parser.add_argument("--allow_worse", action="store_true", help="keep an export that is worse than the run")
    parser.add_argument("--json", action="store_true", help="print export.json")
    options = parser.parse_args(words)
    console.silence_libraries()
    try:
        with console.remembered_interrupts(signal.SIGINT, signal.SIGTERM):
            return run(options)
    except InputError as error:
        if options.json:
            print(json.dumps({"problems": [problem.as_dict() for problem in error.problems]}, indent=2))
        console.error(str(error))
        return 2
    except Exception as error:
        if not disk_full(error):
            raise
        console.error("The disk is full. Nothing was left behind. Make room, or set --out to a folder on another disk.")
        return 1
    except KeyboardInterrupt:
        console.error("\nInterrupted. Nothing was left behind: run the same command again.")
        return 130


def run(options: argparse.Namespace) -> int:
    """Check the options, export, and print the figures."""
    from rlvr.export.export import ExportRefused, Plan, export_run

    plan = Plan(options.to, options.quantization, options.dtype, options.rows, options.allow_worse)
    try:
        with redirect_stdout(sys.stderr):  # progress; standard output is for the result
            record = export_run(options.run_dir, options.out, plan)
    except ExportRefused as refusal:
        _show(refusal.record, options)
        console.error(
            f"The export is refused: {refusal}. docs/export-publish.md has causes. --allow_worse keeps the export."
        )
        return 1
    _show(record, options)
    if not options.json:
        console.info(f"  {options.out}")
    return 0


def _show(record: ExportRecord, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(record.as_dict(), indent=2))
        return
    header = ["", "run", "export", "difference", "95 % interval", "p", "same answers", "log-prob. shift"]
    console.info(console.table(header, [_row(part) for part in record.measured]))
    part = record.measured[0]
    weakness = f"a loss of less than {100 * part.detectable_points:.1f} points would not be told from chance"
    console.info(f"\n  {record.metric} on {part.rows} rows: {weakness}.")
    if record.kind == "adapter" and (faults := [fault for part in record.measured[1:] for fault in part.faults]):
        console.info(
            f"  {console.red('Warning:')} on the base without quantisation, as vLLM loads it, the adapter is not the "
            f"run's model: {'; '.join(faults)}. Use --to merged there."
        )
    if record.base["only_local"] and record.kind == "adapter":
        console.info(
            f"  The base {record.base['name']} is known as a folder only: others need that folder, and name it when "
            "they load the adapter."
        )


def _row(part: Remeasurement) -> list[str]:
    gain = part.difference
    loaded = [part.loaded["program"], *(key for key in part.loaded if key not in ("program", "dtype"))]
    return [
        part.file or f"{' '.join(loaded)}, {part.loaded['dtype']}",
        percent(part.before["accuracy"]),
        percent(part.after["accuracy"]),
        points(gain["points"]),
        f"{points(gain['interval']['low'])} … {points(gain['interval']['high'])}",
        f"{gain['p_value']:.2g}",
        f"{part.same_answers} of {part.rows}",
        "–" if part.likelihood_shift is None else f"{100 * part.likelihood_shift:.2g} %",
    ]


if __name__ == "__main__":
    sys.exit(main())
