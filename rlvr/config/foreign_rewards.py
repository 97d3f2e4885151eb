"""The rewards of the AWS sample, open-r1 and `trl grpo`: ours for each, their columns and their keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Content = Mapping[str, Any]


class ForeignReward(NamedTuple):
    """Our reward for one of theirs, its options, and in what the two differ."""

    name: str
    difference: str
    options: Callable[[Content], dict[str, Any]] = lambda _: {}


_TAGS = {"answer": True}
# The defaults of open-r1's script. Those of its reward function charge wrong answers 1.0 to 0.5, long ones less.
_OPEN_R1_COSINE = {
    "max_len": 1000,
    "min_value_wrong": 0.0,
    "max_value_wrong": -0.5,
    "min_value_correct": 0.5,
    "max_value_correct": 1.0,
}
_ANSWERS = "algebra as in math-verify, but two different final answers score 0, and answers without a box count"
REWARDS: dict[str, ForeignReward] = {
    # The AWS sample
    "correctness_reward_func_qa": ForeignReward(
        "math_correctness", "compares exactly, not within 0.001; reads negative numbers; two different answers score 0"
    ),
    "format_reward_func_qa": ForeignReward("answer_format", "the answer must be the last line, and may be negative"),
    # open-r1
    "accuracy": ForeignReward("math_correctness", _ANSWERS),
    "format": ForeignReward(
        "tag_format", "thoughts and answer must not be empty; line breaks are free", lambda _: _TAGS
    ),
    "tag_count": ForeignReward("tag_format", "a tag must also be in its place", lambda _: {**_TAGS, "soft": True}),
    "repetition_penalty": ForeignReward(
        "repetition",
        "calculations may recur",
        lambda content: {
            "n": content.get("repetition_n_grams", 3),
            "max_penalty": abs(content.get("repetition_max_penalty", -1.0)),
        },
    ),
    "cosine": ForeignReward(
        "cosine_length",
        "the same formula, in characters; from max_len on it stays, where theirs rises again",
        lambda content: {
            **{key: content.get(f"cosine_{key}", default) for key, default in _OPEN_R1_COSINE.items()},
            "unit": "characters",
        },
    ),
    "soft_overlong_punishment": ForeignReward(
        "reasoning_length",
        "the same formula",
        lambda content: {
            "longest": content.get("max_completion_len", 16384),
            "ramp": content.get("soft_punish_cache", 4096),
        },
    ),
    "code": ForeignReward("code_execution", "a whole output is compared, not the lines that both have"),
    "binary_code": ForeignReward(
        "code_execution", "a whole output is compared, not the lines that both have", lambda _: {"all_or_nothing": True}
    ),
    "cf_code": ForeignReward(
        "code_execution",
        "all tests or nothing, without the tenth of weighted_sum; 0 instead of -1 without code and -0.1 if it does not "
        "compile; generated_checker is not read",
        lambda content: {} if content.get("code_eval_scoring_mode") == "partial" else {"all_or_nothing": True},
    ),
    "code_format": ForeignReward(
        "code_format",
        "asks for one code block, not for think and answer tags around it",
        lambda content: {"language": content["code_language"]} if "code_language" in content else {},
    ),
    # `trl grpo`
    "accuracy_reward": ForeignReward("math_correctness", _ANSWERS),
    "reasoning_accuracy_reward": ForeignReward("math_correctness", _ANSWERS),
    "think_format_reward": ForeignReward("tag_format", "thoughts must not be empty, and an answer must follow"),
    "get_soft_overlong_punishment": ForeignReward(
        "reasoning_length", "the same formula and limits", lambda _: {"longest": 1280, "ramp": 256}
    ),
}
# Rewards of the sample's script, which its configuration does not name, with their largest values.
AWS_REWARDS = {"correctness_reward_func_qa": 1.0, "format_reward_func_qa": 0.5}
OPEN_R1_REWARDS = ("accuracy", "format", "tag_count")  # its default
# Columns of our rewards, and the column that their rewards read instead. Datasets with a better one: a short answer.
COLUMNS: dict[str, dict[str, str]] = {
    "accuracy": {"final_answer": "solution"},
    "cosine": {"final_answer": "solution"},
    "accuracy_reward": {"final_answer": "solution"},
    "reasoning_accuracy_reward": {"final_answer": "solution"},
    "cf_code": {"tests": "official_tests", "language": "language", "time_s": "time_limit", "memory_mb": "memory_limit"},
}
SHORT_ANSWERS = {"open-r1/OpenR1-Math-220k": "answer"}
# Keys of their rewards.
REWARD_KEYS = {
    *("reward_funcs", "reward_weights", "repetition_n_grams", "repetition_max_penalty", "max_completion_len"),
    *("soft_punish_cache", "code_eval_scoring_mode", "code_language"),
    *(f"cosine_{key}" for key in _OPEN_R1_COSINE),
}
# How the keys of a reward begin, and that reward.
OWNERS = {
    "repetition_": "repetition_penalty",
    "cosine_": "cosine",
    "code_eval_": "cf_code",
    "code_language": "code_format",
    "max_completion_len": "soft_overlong_punishment",
    "soft_punish_cache": "soft_overlong_punishment",
}
