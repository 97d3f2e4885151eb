"""The table of checks. A check finds problems in the loaded components of a run; it opens nothing and changes nothing.

To add a check, write a function from `RunComponents` to a list of `Problem`, and add a row with what it needs. One
error suppresses only the errors that it causes: a check is skipped if a component that it needs could not be loaded,
if a check that it relies on found an error, or if the value of a key that it reads is unknown.
"""

from __future__ import annotations

from rlvr.preflight import batch_checks, compatibility, data_checks, generation_checks
from rlvr.preflight.components import RunComponents
from rlvr.preflight.findings import Check, Findings
from rlvr.preflight.lora_targets import check_lora_targets
from rlvr.preflight.versions import check_versions
from rlvr.training import launch

BATCH_KEYS = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "generation_batch_size", "steps_per_generation",
    "num_generations", "num_iterations",
)  # fmt: skip
STEP_KEYS = (*BATCH_KEYS, "max_steps", "num_train_epochs", "warmup_steps")
ROWS = (data_checks.check_training_rows,)
# What must be right before rows can be given to rewards.
SCORING = (*ROWS, data_checks.check_columns, data_checks.check_rows, data_checks.check_prompts)

CHECKS: tuple[Check, ...] = (
    # The recipe against the installation, the model's configuration and the launcher.
    Check(check_versions),
    Check(compatibility.check_quantization, reads=("load_in_4bit", "load_in_8bit", "use_peft", "use_vllm")),
    Check(compatibility.check_optional_packages, reads=("use_vllm", "attn_implementation")),
    Check(compatibility.check_output_dir, reads=("output_dir",)),
    Check(compatibility.check_time_limit),
    Check(compatibility.check_trackers, reads=("report_to",)),
    Check(compatibility.check_tied_embeddings, reads=("lora_modules_to_save",), needs=("config",)),
    Check(check_lora_targets, reads=("lora_target_modules", "lora_modules_to_save", "use_peft")),
    Check(batch_checks.check_reward_timeouts, reads=("reward_timeout_s", "reward_batch_timeout_s", "ddp_timeout")),
    Check(compatibility.check_launcher, reads=("use_cpu", "bf16", "fp16", "optim", "load_in_4bit", "load_in_8bit")),
    Check(compatibility.check_precision, reads=("dtype", "load_in_4bit", "use_peft", "use_cpu")),
    Check(batch_checks.check_learning_rate, reads=("learning_rate", "optim")),
    Check(generation_checks.check_layerwise_gathering, reads=("ds3_gather_for_generation",)),
    Check(generation_checks.check_vllm_with_adapter, reads=("use_vllm", "vllm_mode", "use_peft")),
    Check(
        generation_checks.check_generation_config,
        reads=("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "generation_kwargs"),
        needs=("config",),
    ),
    # The rows, and the rewards with them.
    Check(
        compatibility.check_dynamic_sampling,
        reads=("dynamic_sampling", "scale_rewards", "multi_objective_aggregation", "curriculum", *BATCH_KEYS),
        needs=("task",),
    ),
    Check(data_checks.check_training_rows, needs=("task",)),
    Check(compatibility.check_curriculum, reads=("curriculum",), needs=("train",)),
    Check(data_checks.check_columns, needs=("task",), after=ROWS),
    Check(data_checks.check_rows, needs=("task",), after=ROWS),
    Check(data_checks.check_prompts, needs=("task",), after=ROWS),
    Check(data_checks.check_truncation_mask, reads=("mask_truncated_completions",), needs=("task",), after=ROWS),
    Check(
        data_checks.check_held_out_splits,
        reads=("eval_strategy", "ds3_gather_for_generation"),
        needs=("task",),
        after=ROWS,
    ),
    # The numbers of the run.
    Check(batch_checks.check_batches, reads=BATCH_KEYS, needs=("train",)),
    Check(
        generation_checks.check_prompt_lengths,
        reads=("max_completion_length", "eval_strategy", "use_vllm", "vllm_max_model_length"),
        after=SCORING,
    ),
    Check(data_checks.check_repeated_prompts, needs=("train",), after=(data_checks.check_prompts,)),
    Check(generation_checks.check_turn_end, needs=("train", "tokenizer", "config"), after=SCORING),
    Check(generation_checks.check_text_end, needs=("train", "tokenizer"), after=SCORING),
    Check(
        generation_checks.check_gold_lengths,
        reads=("max_completion_length", "mask_truncated_completions"),
        needs=("train", "tokenizer"),
        after=SCORING,
    ),
    Check(batch_checks.check_schedule, reads=STEP_KEYS, needs=("train",), after=(*SCORING, batch_checks.check_batches)),
)


def check_components(components: RunComponents, findings: Findings | None = None) -> Findings:
    """Run the table of checks, as under the launcher of the target machine. `findings` receives the problems."""
    findings = findings or Findings()
    with launch.as_launched(components.target.launcher):
        findings.run(CHECKS, components)
    return findings
