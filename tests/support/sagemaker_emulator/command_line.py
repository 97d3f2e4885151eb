"""Run scripts/sagemaker.py with short polling, because the emulator's log lines are never late.

python command_line.py COMMAND …
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]

if __name__ == "__main__":
    sys.path[:] = [str(REPOSITORY), *(folder for folder in sys.path if folder != str(Path(__file__).parent))]

    from rlvr.sagemaker import follow
    from scripts import sagemaker

    follow.watch = functools.partial(follow.watch, poll_s=0.5, settle_s=2.0)
    sys.exit(sagemaker.main())
