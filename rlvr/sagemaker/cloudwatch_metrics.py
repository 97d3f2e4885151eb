"""Regular expressions by which CloudWatch reads metrics from a job's log.

A step's line is `  step  12/60   reward  0.531   length   23.1   cut off   0 %`.
"""

from __future__ import annotations

import re

_PATTERNS = {
    "reward": r"step +[0-9]+/[0-9]+ +reward +(-?[0-9.]+)",
    "completion_length": r"step +[0-9]+/[0-9]+ .* length +([0-9.]+)",
    "clipped_percent": r"step +[0-9]+/[0-9]+ .* cut off +([0-9.]+)",
    "accuracy_percent": r"(?:before|after) training: +([0-9.]+) % right",
}

STEP_LINE = re.compile(r"step +(?P<step>[0-9]+)/(?P<steps>[0-9]+) +reward +(?P<reward>-?[0-9.]+|nan)")


def metric_definitions() -> list[dict[str, str]]:
    """`Name` and `Regex` of each metric; CloudWatch takes the first group as the value."""
    return [{"Name": name, "Regex": pattern} for name, pattern in _PATTERNS.items()]
