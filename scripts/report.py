"""Writes the report of a run, one self-contained HTML page, from its run directory; or one that compares runs.

    python scripts/report.py runs/demo-arithmetic
    python scripts/report.py runs/a runs/b                       # b held against a
    python scripts/report.py runs/a runs/b --out comparison.html

The page is report.html in the run directory, or comparison.html in the last one; an earlier one is replaced, in MLflow
as well if the run is there. Works on a run that is still going, too. docs/report.md says what is on it.
Exit codes: 0 written; 2 there is no such run directory, or the page can't be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # rlvr/, wherever this is started from

from rlvr.errors import InputError


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dirs", type=Path, nargs="+", metavar="RUN_DIR", help="the folder that a run wrote to")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the page there instead")
    options = parser.parse_args(words)

    from rlvr.report import write_comparison, write_report
    from rlvr.tracking.mlflow_results import replace_page

    try:
        if len(options.run_dirs) == 1:
            page = write_report(options.run_dirs[0], options.out)
        else:
            page = write_comparison(options.run_dirs, options.out)
        print(page)
        said = replace_page(options.run_dirs[-1], page) if options.out is None else None
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    if said:
        print(said, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
