"""An adapter is applied where the recipe says, to modules that the model has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from transformers import AutoConfig

from rlvr.preflight.lora_targets import check_lora_targets
from tests.support.input_errors import input_error
from tests.support.run_components import make_components


@pytest.mark.parametrize(
    ("settings", "kind", "why"),
    [
        ({"lora_target_modules": "all-linear"}, None, "all but the head"),
        ({"lora_target_modules": None}, None, "PEFT knows Qwen2's"),
        ({"lora_target_modules": ["q_proj", "v_proj"]}, None, "names"),
        ({"lora_target_modules": [".*_proj"]}, None, "a pattern"),
        ({"lora_target_modules": ["q_proj", "v_prj"]}, "unknown-module", "passed over by PEFT"),
        ({"lora_target_modules": ["q_proj"]}, "refused-by-trl", "a list of one is a pattern for TRL"),
        ({"lora_target_modules": "*proj"}, "refused-by-trl", "no pattern"),
        ({"lora_target_modules": ["q_proj", "self_attn"]}, "refused-by-trl", "a block"),
        ({"lora_target_modules": r".*(_proj|head)"}, "lora-on-head", "the head among others"),
        ({"lora_target_modules": ["lm_head"], "trust_remote_code": True}, "lora-on-head", "code of the model's own"),
        ({"lora_modules_to_save": ["lm_hed"]}, "unknown-module", "passed over by PEFT"),
        ({"lora_modules_to_save": ["norm"]}, None, "a module that there is"),
    ],
)
def test_an_adapter_that_would_not_be_applied_as_the_recipe_says_is_refused(
    settings: dict[str, Any], kind: str | None, why: str
) -> None:
    problems = check_lora_targets(make_components(settings))
    assert [problem.kind for problem in problems] == ([kind] if kind else []), why


def test_a_model_that_writes_no_text_is_refused() -> None:
    clip = replace(make_components(), config=AutoConfig.for_model("clip"))
    with input_error("unsupported-model", match="clip"):
        list(check_lora_targets(clip))
