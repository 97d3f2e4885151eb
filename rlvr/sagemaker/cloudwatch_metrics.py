"""Regular expressions by which CloudWatch reads metrics from a job's log.

Three kinds of lines match: this project's step line (`  step  12/60   reward  0.531   length   23.1   cut off   0 %`);
the dictionaries of TRL and transformers, whose numbers are quoted now (`'reward': '0.531'`) and were not in earlier
releases (`'reward': 0.531`); and the lines of metrics.jsonl, which look like the latter.
"""

from __future__ import annotations

import re

_NUMBER = r"(-?[0-9.]+(?:e[-+]?[0-9]+)?)"
_STEP_LINE_PATTERNS = {
    "reward": r"step +[0-9]+/[0-9]+ +reward +",
    "completion_length": r"step +[0-9]+/[0-9]+ .* length +",
    "clipped_percent": r"step +[0-9]+/[0-9]+ .* cut off +",
}
_TRL_KEYS = {
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

STEP_LINE = re.compile(r"step +(?P<step>[0-9]+)/(?P<steps>[0-9]+) +reward +(?P<reward>-?[0-9.]+|nan)")


def metric_definitions() -> list[dict[str, str]]:
    """`Name` and `Regex` of each metric; CloudWatch takes the first group as the value."""
    definitions = []
    for name in dict.fromkeys([*_STEP_LINE_PATTERNS, *_TRL_KEYS]):
        patterns = [_STEP_LINE_PATTERNS[name]] if name in _STEP_LINE_PATTERNS else []
        patterns += [rf"['\"]{re.escape(_TRL_KEYS[name])}['\"]: '?"] if name in _TRL_KEYS else []
        definitions.append({"Name": name, "Regex": f"(?:{'|'.join(patterns)}){_NUMBER}"})
    return [*definitions, {"Name": "accuracy_percent", "Regex": _ACCURACY}]
