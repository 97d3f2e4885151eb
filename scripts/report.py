"""Write the HTML report of a run, or a comparison of several runs.

    python scripts/report.py runs/demo-arithmetic
    python scripts/report.py runs/a runs/b                       # compare b with a
    python scripts/report.py runs/a runs/b --out comparison.html

The page is report.html in the run directory, or comparison.html in the last one. An earlier page is replaced. While a
run is in progress, only --out outside its directory is allowed. docs/evaluation.md describes the page. Exit codes:
0 written; 2 the run directory does not exist, or the page can't be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.errors import InputError


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=console.HelpFormatter)
    parser.add_argument("run_dirs", type=Path, nargs="+", metavar="RUN_DIR", help="output_dir of a run")
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write; default: in the run directory")
    options = parser.parse_args(words)

    try:
        with console.SlowStep(f"Writing the report of {' and '.join(map(str, options.run_dirs))}"):
            from rlvr.report import comparison, page

            if len(options.run_dirs) == 1:
                written = page.write_report(options.run_dirs[0], options.out)
            else:
                written = comparison.write_comparison(options.run_dirs, options.out)
        console.info(str(written))
    except InputError as error:
        console.error(str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
