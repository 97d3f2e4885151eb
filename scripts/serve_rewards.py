#!/usr/bin/env python
"""Serve rewards and the judge over HTTP; `--help` lists the options.

`python -m rlvr.reward_server` is the same command, for machines without a checkout.
"""

import sys

from rlvr.reward_server.__main__ import main  # not found: run `make install`, then `. .venv/bin/activate`

if __name__ == "__main__":
    sys.exit(main())
