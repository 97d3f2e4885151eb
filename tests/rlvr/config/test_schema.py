"""The reading of TRL's options agrees with TRL, and judges values rightly."""

from __future__ import annotations

import dataclasses

import pytest

from rlvr.config import schema


def test_fields_are_exactly_those_of_the_imported_dataclasses() -> None:
    from trl import GRPOConfig, ModelConfig

    imported = {field.name for kind in (GRPOConfig, ModelConfig) for field in dataclasses.fields(kind) if field.init}
    assert set(schema.fields()) == imported | set(schema.OWN)
    assert imported & set(schema.OWN) == {"resume_from_checkpoint"}, "transformers declares it and never reads it"


def test_defaults_are_those_of_the_imported_dataclasses() -> None:
    from trl import GRPOConfig, ModelConfig

    imported = {
        each.name: each.default
        for kind in (GRPOConfig, ModelConfig)
        for each in dataclasses.fields(kind)
        if each.default is not dataclasses.MISSING
    }
    ours = {name: default for name, default in schema.defaults().items() if name not in schema.OWN}
    assert len(ours) > 200 and ours == {name: imported.get(name, "absent") for name in ours}


def test_each_field_is_filed_under_the_class_that_takes_it() -> None:
    from trl import ModelConfig

    model_keys = {field.name for field in dataclasses.fields(ModelConfig)}
    assert {name for name, field in schema.fields().items() if field.belongs_to == "model"} == model_keys


def test_a_refused_key_is_gone_from_trl_unless_we_refuse_it_for_a_reason_of_ours() -> None:
    still_there = {
        "gradient_checkpointing",
        "gradient_checkpointing_kwargs",
        "reward_weights",
        "hub_token",
        "use_transformers_continuous_batching",
        "enable_jit_checkpoint",
        "num_generations_eval",
        "transformers_continuous_batching_config",
    }
    assert set(schema.REMOVED) & set(schema.fields()) == still_there


@pytest.mark.parametrize(
    ("key", "value", "fault", "why"),
    [
        ("learning_rate", 1e-4, None, "a float"),
        ("learning_rate", 1, None, "a whole number is a number"),
        ("learning_rate", "1e-4", "text", "a quoted number is text, and TRL would not convert it"),
        ("learning_rate", True, "truth value", "true is not 1"),
        ("max_steps", 1.5, "whole number", "a fraction of a step"),
        ("max_steps", 3, None, "an int"),
        ("bf16", "yes", "true or false", "a word of YAML 1.1"),
        ("warmup_steps", 0.1, None, "a ratio"),
        ("save_strategy", "no", None, "a word, not false"),
        ("save_strategy", False, "none of its choices", "what YAML 1.1 makes of no"),
        ("loss_type", "bogus", "none of its choices", "TRL would notice after the first generation"),
        ("scale_rewards", False, None, "TRL accepts a truth value here"),
        ("scale_rewards", 0, "none of its choices", "0 is not false"),
        ("report_to", ["mlflow", "tensorboard"], None, "one or several"),
        ("report_to", "mlflow", None, "one or several"),
        ("lora_target_modules", "all-linear", None, "PEFT's shorthand"),
        ("num_generations", None, None, "None is TRL's own default"),
        ("seed", None, "empty", "a key without a value"),
        ("optim", "adamw_torch", None, "an enumeration of strings"),
        ("generation_kwargs", {"top_k": 3}, None, "a mapping"),
        ("learning_rate", -1, "above 0", "a negative rate"),
        ("learning_rate", float("nan"), "finite", "YAML's .nan"),
        ("beta", float("inf"), "finite", "YAML's .inf"),
        ("learning_rate", 0.0, "above 0", "a rate of nothing"),
        ("warmup_steps", 0, None, "no warm-up"),
        ("top_p", 1.5, "above 0 and at most 1", "no probability"),
        ("num_generations", 1, "at least 2", "no group"),
        ("max_steps", 0, "at least 1, or -1", "no step"),
        ("max_steps", 10**30, "at least 1, or -1", "longer than anyone lives"),
        ("max_steps", -1, None, "TRL's own default"),
        ("seed", 2**32, "at most", "numpy takes 32 bits"),
        ("per_device_train_batch_size", -8, "at least 1", "negative"),
    ],
)
def test_values_are_judged_by_their_annotation(key: str, value: object, fault: str | None, why: str) -> None:
    found = schema.fault_of(key, value)
    assert (found is None) if fault is None else (found is not None and fault in found), why


def test_every_choice_of_ours_is_accepted_by_trl(tmp_path: object) -> None:
    """The tables in `CHOICES` are typed by hand, so they are held against what TRL's enumerations accept."""
    from transformers.trainer_utils import IntervalStrategy, SaveStrategy, SchedulerType

    assert set(schema.CHOICES["save_strategy"]) <= {item.value for item in SaveStrategy}
    assert set(schema.CHOICES["eval_strategy"]) == {item.value for item in IntervalStrategy}
    assert set(schema.CHOICES["lr_scheduler_type"]) <= {item.value for item in SchedulerType}


def test_every_loss_type_of_ours_is_one_that_trl_computes() -> None:
    import inspect

    from trl import GRPOTrainer

    source = inspect.getsource(GRPOTrainer)
    for loss in schema.CHOICES["loss_type"]:
        assert f'"{loss}"' in source, loss
