"""The keys of a recipe agree with TRL's classes, and values are checked against their annotations."""

from __future__ import annotations

import inspect
import re

import pytest

from rlvr.config import foreign_keys, schema
from rlvr.config.recipe import SECTIONS


def test_the_file_of_keys_is_that_of_the_installed_trl() -> None:
    from rlvr.config import trl_keys

    command = "the fields of TRL or transformers have changed: run `python -m rlvr.config.trl_keys`"
    assert trl_keys.FILE.read_text(encoding="utf-8") == trl_keys.generate(), command
    assert {"learning_rate", "lora_r"} <= schema.fields().keys() and len(schema.defaults()) > 200
    imported = {name for name, field in schema.fields().items() if field.belongs_to != "run"}
    assert not imported & set(schema.OWN), "TRL declares resume_from_checkpoint and never reads it"


def test_a_key_that_trl_still_has_is_refused_by_name() -> None:
    assert foreign_keys.removed().keys() & schema.fields().keys() == schema.REFUSED


def test_every_successor_is_a_key_of_today() -> None:
    removed = foreign_keys.removed()
    plain = {advice for advice in removed.values() if " " not in advice}
    assert all(re.match(r"(Use|Remove it:|Give) \S", advice) for advice in {*removed.values()} - plain)
    named = {name for advice in removed.values() for name in re.findall(r"Use ([a-z0-9_]+)", advice)}
    successors = plain | (named - {"the"})
    assert successors <= {*SECTIONS, *schema.fields()}
    assert not successors & removed.keys()


@pytest.mark.parametrize(
    ("key", "value", "kind", "why"),
    [
        ("learning_rate", 1e-4, None, "a float"),
        ("learning_rate", "1e-4", "wrong-type", "a quoted number is text, and TRL would not convert it"),
        ("learning_rate", True, "wrong-type", "true is not 1"),
        ("lora_target_modules", ["q_proj", 3], "wrong-type", "a number among names"),
        ("max_steps", 1.5, "wrong-type", "a fraction of a step"),
        ("bf16", "yes", "wrong-type", "a word of YAML 1.1"),
        ("warmup_steps", 0.1, None, "a ratio"),
        ("save_strategy", "no", None, "a word, not false"),
        ("save_strategy", False, "unknown-choice", "YAML 1.1 reads no as false"),
        ("loss_type", "bogus", "unknown-choice", "TRL would notice after the first generation"),
        ("scale_rewards", False, None, "TRL accepts a truth value here"),
        ("report_to", ["mlflow", "tensorboard"], None, "one or several"),
        ("lora_target_modules", "all-linear", None, "PEFT's shorthand"),
        ("num_generations", None, None, "None is TRL's own default"),
        ("seed", None, "wrong-type", "a key without a value"),
        ("optim", "adamw_torch", None, "an enumeration of strings"),
        ("generation_kwargs", {"top_k": 3}, None, "a mapping"),
        ("learning_rate", -1, "out-of-range", "a negative rate"),
        ("learning_rate", float("nan"), "out-of-range", "YAML's .nan"),
        ("beta", float("inf"), "out-of-range", "YAML's .inf"),
        ("learning_rate", 0.0, "out-of-range", "nothing would be trained"),
        ("lora_dropout", 1.0, "out-of-range", "an adapter without any input"),
        ("dataloader_num_workers", -1, "out-of-range", "no word for all cores"),
        ("max_completion_length", None, "wrong-type", "TRL would generate to the model's limit"),
        ("adam_beta1", 1.0, "out-of-range", "PyTorch would notice after the base was measured"),
        ("top_k", -5, "out-of-range", "0 and vLLM's -1 turn it off"),
        ("min_p", 2, "out-of-range", "no probability"),
        ("num_generations", 1, "out-of-range", "no group"),
        ("max_steps", 0, "out-of-range", "no step"),
        ("max_steps", 10**30, "out-of-range", "longer than anyone lives: at most 1000000000"),
        ("max_steps", -1, None, "TRL's own default"),
        ("seed", 2**32, "out-of-range", "numpy takes 32 bits"),
        ("on_reward_error", "ignore", "unknown-choice", "a key of ours"),
    ],
)
def test_values_are_checked_against_their_annotation(key: str, value: object, kind: str | None, why: str) -> None:
    fault = schema.value_fault(key, value)
    assert (fault.kind if fault is not None else None) == kind, why


def test_every_choice_of_ours_is_accepted_by_trl() -> None:
    """`CHOICES` is written by hand, so compare it with TRL's enumerations."""
    from transformers.trainer_utils import IntervalStrategy, SaveStrategy, SchedulerType
    from transformers.training_args import trainer_log_levels

    assert set(schema.CHOICES["log_level"]) == set(trainer_log_levels)
    assert set(schema.CHOICES["save_strategy"]) <= {item.value for item in SaveStrategy}
    assert set(schema.CHOICES["eval_strategy"]) == {item.value for item in IntervalStrategy}
    assert set(schema.CHOICES["lr_scheduler_type"]) <= {item.value for item in SchedulerType}


@pytest.mark.parametrize(
    ("name", "key"), [("gspo", "importance_sampling_level"), ("GDPO", "multi_objective_aggregation")]
)
def test_an_algorithm_that_is_no_loss_names_the_key_that_makes_it(name: str, key: str) -> None:
    fault = schema.value_fault("loss_type", name)
    assert fault is not None and fault.kind == "unknown-choice"
    value = fault.text.partition(f"{key}: ")[2].partition(",")[0]
    assert value in schema.CHOICES[key], "the named value is one"


@pytest.mark.parametrize("key", ["loss_type", "vllm_importance_sampling_mode"])
def test_every_choice_of_ours_is_one_that_trl_computes(key: str) -> None:
    from trl import GRPOTrainer

    source = inspect.getsource(GRPOTrainer)
    for choice in schema.CHOICES[key]:
        assert f'"{choice}"' in source, choice
