"""Make a table of many runs from their records.

    python scripts/results.py runs/*                              # in the terminal
    python scripts/results.py runs/* --markdown --out table.md    # or --json, with every field
    python scripts/results.py --readme    # write the tables in README.md and recipes/README.md from results/

Give run directories or files of records. A run without a record, or with one that was changed, is left out with the
reason. A run whose files differ from its record is marked with "!". Runs that answered other held-out rows, or were
measured in another way, are in tables of their own. docs/evaluation.md#records-and-tables-of-runs describes a record.

Exit codes: 0 all runs have records that fit; 1 some have not; 2 no run has, or the file can't be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.config import project
from rlvr.formatting import count


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=console.HelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN", help="output_dir of a run, or a record")
    form = parser.add_mutually_exclusive_group()
    for name in ("markdown", "json"):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=f"print {name}")
    form.add_argument("--readme", action="store_true", help="write README.md's table and recipes/README.md")
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write; default: standard output")
    options = parser.parse_args(words)
    if bool(options.runs or options.out) == options.readme:
        parser.error("give runs, or --readme alone")

    from rlvr.report import recipe_tables, result_table

    root = project.ROOT
    results, problems = result_table.read_results(options.runs or sorted((root / "results").glob("*.json")))
    for problem in problems:
        console.error(problem)
    if not results:
        console.error(f"{count(len(problems), 'path')} given, and none has a record.")
        return 2
    if options.readme:
        for name, page in recipe_tables.pages(root, results).items():
            (root / name).write_text(page, encoding="utf-8")
            console.info(name)
        return 1 if problems else 0
    if options.form == "json":
        text = result_table.as_json(results)
    else:
        text = result_table.as_text(results, markdown=options.form == "markdown")
    if options.out is None:
        # A table is made for the terminal's width; other forms are for programs.
        console.write(text, sys.stdout) if options.form else console.info(text)
    else:
        try:
            options.out.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            console.error(f"{options.out} can't be written: {error.strerror}. Name another file with --out.")
            return 2
        console.info(str(options.out))
    return 1 if problems or any(result.faults for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
