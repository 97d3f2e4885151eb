"""The environments' side of a worker process: it holds the objects of rollouts, and runs the steps that it receives.

A step is a dictionary: `action`, its arguments, and `seed`, from which the random numbers of the step come. So the
result of a step depends neither on the steps of other rollouts in the same process nor on their order.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from rlvr.environments.loading import Environment, load_environment
from rlvr.scoring.call_conditions import seed_random_numbers
from rlvr.scoring.reward import await_value


def prepare(payload: bytes) -> Callable[[bytes], dict[str, Any]]:
    """Load the environments, and return the function of a worker's items.

    Args:
        payload: the specs of the environments, and the length at which the output of a tool is cut; pickled.

    Raises:
        InputError: as `rlvr.environments.loading.load_environment`.
    """
    specs, max_output = pickle.loads(payload)
    environments = [load_environment(spec) for spec in specs]
    kinds: dict[int, Environment] = {}  # by rollout
    objects: dict[int, Any] = {}

    def reset(step: Mapping[str, Any], rollout: int) -> dict[str, Any]:
        kinds[rollout] = environments[step["environment"]]
        objects[rollout] = kinds[rollout].build()
        observation = await_value(objects[rollout].reset(**step["row"]))
        if observation is not None and not isinstance(observation, str):
            raise TypeError(f"reset returned {type(observation).__name__}, but should return text or None")
        return {"value": observation if observation is None else clean(observation)}

    def call(step: Mapping[str, Any], rollout: int) -> dict[str, Any]:
        try:
            value = str(await_value(getattr(objects[rollout], step["tool"])(**step["arguments"])))
            failed = False
        except (Exception, SystemExit) as error:  # an exception of a tool is a result, in TRL's words
            value, failed = str({"error": str(error) or type(error).__name__}), True
        return {"value": shorten(clean(value), max_output), "failed": failed}

    def reward(step: Mapping[str, Any], rollout: int) -> dict[str, Any]:
        value = await_value(objects[rollout].get_reward())
        if isinstance(value, str):
            raise TypeError(f"get_reward returned the text {value!r}, but should return a finite number or None")
        number = None if value is None else float(value)
        if number is not None and not math.isfinite(number):
            raise ValueError(f"get_reward returned {value!r}, but should return a finite number or None")
        return {"value": number}

    def attribute(step: Mapping[str, Any], rollout: int) -> dict[str, Any]:
        try:
            content = getattr(objects[rollout], step["name"])
            json.dumps(content)
        except (AttributeError, TypeError, ValueError) as error:
            why = f"the environment's {step['name']} can't be read from its worker: {error}"
            return {"value": {"found": False, "why": why}}
        return {"value": {"found": True, "content": content}}

    def reference(step: Mapping[str, Any], rollout: int) -> dict[str, Any]:
        play = kinds[rollout].play_reference
        return {"value": play is not None and play(objects[rollout], **step["row"]) is not False}

    def killed(step: Mapping[str, Any], rollout: int) -> dict[str, Any]:
        count = kinds[rollout].count_killed_call
        return {"value": count and count(objects[rollout], step["tool"])}

    def end(step: Mapping[str, Any], rollout: int) -> dict[str, Any]:
        kinds.pop(rollout, None)
        objects.pop(rollout, None)
        return {}

    actions = {
        "reset": reset,
        "call": call,
        "reward": reward,
        "attribute": attribute,
        "reference": reference,
        "killed": killed,
        "end": end,
    }

    def serve(data: bytes) -> dict[str, Any]:
        message = pickle.loads(data)
        result: dict[str, Any] = {}
        for step in message["steps"]:
            seed_random_numbers(step["seed"])
            result = actions[step["action"]](step, message["rollout"])
        return result

    return serve


def clean(text: str) -> str:
    """The text without lone surrogates, which no tokenizer encodes."""
    return text.encode("utf-8", "replace").decode()


def shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[{len(text) - limit:,} more characters]"
