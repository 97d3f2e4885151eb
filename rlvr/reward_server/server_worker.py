"""The workers of a reward server, and their items: call its rewards, judge programs.

Items come from the network. So they are JSON, and nothing of them is unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlvr.errors import InputError
from rlvr.scoring.backends.local import call_reward, load_with_imports
from rlvr.scoring.call_conditions import call_conditions
from rlvr.scoring.reward import label_of
from rlvr.verifiers.code import Judgement, Limits, SandboxUnavailable, judge_many

MAX_STDERR = 200  # characters a test
_FIELDS = ("score", "verdicts", "cpu_s", "memory_mb", "compile_output")
_REASONS = ("reasons", "feedback")


def served_item(columns: Mapping[str, Sequence[Any]], **message: Any) -> bytes:
    """A message and columns as JSON; `read_served_item` reads it.

    Each value is encoded by itself: one call for all would hold Python's lock, and stop every request, for seconds.
    """
    encoded = [f"{json.dumps(name)}: [{', '.join(map(json.dumps, values))}]" for name, values in columns.items()]
    return f'{{"message": {json.dumps(message)}, "columns": {{{", ".join(encoded)}}}}}'.encode()


def read_served_item(item: bytes) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The message and the columns of a `served_item`."""
    content = json.loads(item)
    return content["message"], content["columns"]


def prepare_served(specs: bytes) -> Callable[[bytes], dict[str, Any]]:
    """Load rewards, and return the function of the workers' items: to call one of them.

    Names and options are valid (served_rewards.py). Options that are null are those that the server was started with.

    Args:
        specs: pickled by the server itself when it was started.
    """
    rewards = {reward.label: reward for reward in load_with_imports(specs)}

    def serve(item: bytes) -> dict[str, Any]:
        message, columns = read_served_item(item)
        reward = rewards[label_of(message["reward"])]
        if message["options"] is not None:
            reward = replace(reward, options=message["options"])
        with call_conditions(tuple(message["seed"]), message["state"], len(columns["completions"])):
            return vars(call_reward(reward, columns, message["state"]))

    return serve


def judge_request(item: bytes) -> dict[str, Any]:
    """Judge all submissions; return their judgements, or an error with its HTTP status and kind.

    Args:
        item: a `served_item` with the columns "submissions" (the arguments of `rlvr.verifiers.code.judge` except
            `tests`) and "tests", and "reasons": whether to include why tests failed.
    """
    message, columns = read_served_item(item)
    try:
        submissions = [
            {**submission, "tests": tests, "limits": Limits(**submission["limits"])}
            for submission, tests in zip(columns["submissions"], columns["tests"], strict=True)
        ]
        judgements = judge_many(submissions)
    except SandboxUnavailable as error:
        return {"error": str(error), "status": 503, "kind": "no-sandbox"}
    except InputError as error:
        return {"error": str(error), "status": 422, "kind": error.kind}
    return {"judgements": [_as_json(judgement, message["reasons"]) for judgement in judgements]}


def _as_json(judgement: Judgement, reasons: bool) -> dict[str, Any]:
    content = {name: getattr(judgement, name) for name in (*_FIELDS, *(_REASONS if reasons else ()))}
    if reasons:
        content["stderr"] = [text.strip()[-MAX_STDERR:] for text in judgement.stderr]
    return content
