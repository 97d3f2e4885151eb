"""What CloudWatch reads off a job's log: definitions of metrics that match the lines which a run prints.

Three forms are matched: the line a step of this project (`  step  12/60   reward  0.531   length   23.1   cut off   0
%`), and the dictionaries of TRL and transformers, whose numbers are quoted text in present releases (`'reward':
'0.531'`) and were plain before (`'reward': 0.531`). The lines of metrics.jsonl, were somebody to print them, match as
the latter do.
"""

from __future__ import annotations

import re

# A number in a dictionary, and what may stand around it.
_NUMBER = r"(-?[0-9.]+(?:e[-+]?[0-9]+)?)"
_OURS = {
    "reward": r"step +[0-9]+/[0-9]+ +reward +",
    "completion_length": r"step +[0-9]+/[0-9]+ .* length +",
    "clipped_percent": r"step +[0-9]+/[0-9]+ .* cut off +",
}
_TRLS = {
    "reward": "reward",
    "reward_std": "reward_std",
    "loss": "loss",
    "kl": "kl",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "completion_length": "completions/mean_length",
    "zero_std_fraction": "frac_reward_zero_std",
    "step_time": "step_time",
}
_ACCURACY = r"(?:before|after) training: +([0-9.]+) % right"

STEP_LINE = re.compile(
    r"step +(?P<step>[0-9]+)/(?P<steps>[0-9]+) +reward +(?P<reward>-?[0-9.]+|nan)"
    r"(?: +length +(?P<length>[0-9.]+))?(?: +cut off +(?P<clipped>[0-9.]+) %)?(?: +(?P<left>[0-9].*?) left)?"
)


def definitions() -> list[dict[str, str]]:
    """Name and regular expression of each metric; CloudWatch takes what the first group matches."""
    found = []
    for name in dict.fromkeys([*_OURS, *_TRLS]):
        ways = [_OURS[name]] if name in _OURS else []
        ways += [rf"['\"]{re.escape(_TRLS[name])}['\"]: '?"] if name in _TRLS else []
        found.append({"Name": name, "Regex": f"(?:{'|'.join(ways)}){_NUMBER}"})
    return [*found, {"Name": "accuracy_percent", "Regex": _ACCURACY}]
