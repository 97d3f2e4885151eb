"""The report of a run: one self-contained HTML page, made from the run directory alone; and of several, side by side.

    reading.py      a run directory, and a sentence on whatever it lacks
    curves.py       what is drawn of its metrics
    measured.py     its accuracy by the number of shots, and in several tries
    rollouts.py     the completions that the page carries, and whys.py: the rewards' own words on some of them
    page.py         the page of one run; comparison.py: of several

Prompts, completions and names are data from elsewhere: the templates escape them all, and the pages allow themselves no
request and no script but their own.
"""

from __future__ import annotations

from rlvr.report.comparison import write_comparison
from rlvr.report.page import write_report

__all__ = ["write_comparison", "write_report"]
