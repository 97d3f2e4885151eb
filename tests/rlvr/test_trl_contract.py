"""What `rlvr.training.RecipeTrainer` relies on in TRL beyond its public interface still is as it was.

If one of these fails after an upgrade, read the change in TRL before touching the test.
"""

from __future__ import annotations

import inspect

import pytest
from trl import GRPOTrainer


@pytest.mark.parametrize(
    ("method", "parameters", "why"),
    [
        ("_calculate_rewards", ["self", "inputs", "prompts", "completions", "completion_ids_list"], "masks and gates"),
        ("_generate", ["self", "prompts"], "completions/clipped_ratio with stop strings"),
        (
            "_generate_single_turn",
            ["self", "prompt_ids", "images", "multimodal_fields", "num_generations", "has_tool_images"],
            "stop strings",
        ),
    ],
)
def test_overridden_methods_keep_their_parameters(method: str, parameters: list[str], why: str) -> None:
    assert list(inspect.signature(getattr(GRPOTrainer, method)).parameters) == parameters, why


def test_trl_itself_still_passes_no_tokenizer_to_generate() -> None:
    """When it does, `RecipeTrainer._generate_single_turn` and `_generate` can go."""
    source = inspect.getsource(GRPOTrainer._generate_single_turn)
    assert "unwrapped_model.generate(" in source and "tokenizer=" not in source


def test_trl_itself_still_counts_none_as_zero_beside_another_reward() -> None:
    """When it masks such rows by itself, `RecipeTrainer._calculate_rewards` need only apply gates."""
    assert "nansum(dim=1)" in inspect.getsource(GRPOTrainer._generate_and_score_completions)
