"""What `rlvr.training.grpo_trainer` and `rlvr.training.checkpoint_trainer` rely on beyond the public interface of TRL
and transformers is as it was.

If one of these fails after an upgrade, read the change in TRL before touching the test.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from transformers import Trainer
from trl import GRPOTrainer

RUN_EPOCH = [
    *("self", "model", "epoch", "train_dataloader", "steps_in_epoch", "num_update_steps_per_epoch", "trial"),
    *("ignore_keys_for_eval", "start_time", "resume_from_checkpoint", "epochs_trained"),
    "steps_trained_in_current_epoch",
]


@pytest.mark.parametrize(
    ("method", "parameters", "why"),
    [
        ("_calculate_rewards", ["self", "inputs", "prompts", "completions", "completion_ids_list"], "masks and gates"),
        ("_generate", ["self", "prompts"], "completions/clipped_ratio with stop strings; lengths; time"),
        ("_generate_and_score_completions", ["self", "inputs"], "adaptive advantages, masked tokens, dynamic sampling"),
        ("_compute_loss", ["self", "model", "inputs"], "policy_kl"),
        ("training_step", ["self", "model", "inputs", "num_items_in_batch"], "time/update"),
        ("_save_checkpoint", ["self", "model", "trial"], "checkpoints that are complete or absent"),
        ("_run_epoch", RUN_EPOCH, "no step after the last"),
        ("log", ["self", "logs", "start_time"], "a table of completions that can't be written"),
        (
            "_generate_single_turn",
            ["self", "prompt_ids", "images", "multimodal_fields", "num_generations", "has_tool_images"],
            "stop strings",
        ),
    ],
)
def test_overridden_methods_keep_their_parameters(method: str, parameters: list[str], why: str) -> None:
    assert list(inspect.signature(getattr(GRPOTrainer, method)).parameters) == parameters, why


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("_step", GRPOTrainer.training_step),
        ("_buffered_inputs", GRPOTrainer._prepare_inputs),
        ("_current_train_step_time", GRPOTrainer.training_step),
        ("_metrics", GRPOTrainer.log),
        ("_logs", GRPOTrainer.log),
        ("_tr_loss", Trainer._maybe_log_save_evaluate),
        ("_globalstep_last_logged", Trainer._maybe_log_save_evaluate),
    ],
)
def test_what_a_checkpoint_keeps_between_two_steps_still_has_its_name(name: str, where: Any) -> None:
    assert name.removeprefix("_") in inspect.getsource(inspect.unwrap(where))


def test_log_probabilities_are_the_first_thing_returned() -> None:
    source = inspect.getsource(GRPOTrainer._get_per_token_logps_and_entropies)
    assert "return logps, entropies, aux_loss" in source


def test_trl_itself_still_forgets_what_is_between_two_generations() -> None:
    """When it saves it, `rlvr.training.checkpoint_trainer.SavingTrainer` has less to do."""
    assert "_buffered_inputs" not in inspect.getsource(GRPOTrainer._save_checkpoint)


def test_trl_itself_still_passes_no_tokenizer_to_generate() -> None:
    """When it does, `RecipeTrainer._generate_single_turn` and `_generate` can go."""
    source = inspect.getsource(GRPOTrainer._generate_single_turn)
    assert "unwrapped_model.generate(" in source and "tokenizer=" not in source


def test_trl_itself_still_counts_none_as_zero_beside_another_reward() -> None:
    """When it masks such rows by itself, `RecipeTrainer._calculate_rewards` need only apply gates."""
    assert "nansum(dim=1)" in inspect.getsource(GRPOTrainer._generate_and_score_completions)
