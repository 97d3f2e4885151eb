"""Writes the report of a run, one self-contained HTML page, from its run directory.

    python scripts/report.py runs/demo-arithmetic

The page is report.html in the run directory; an earlier one is replaced. Works on a run that is still going, too.
Exit codes: 0 written; 2 there is no such run directory, or it can't be written to.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # rlvr/, wherever this is started from

from rlvr.errors import InputError
from rlvr.report import write_report


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="the folder that a run wrote to")
    options = parser.parse_args(words)
    try:
        print(write_report(options.run_dir))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
