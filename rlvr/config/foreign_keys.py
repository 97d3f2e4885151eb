"""Configurations of other programs: how to recognise one, and the successor of each of its keys.

docs/coming-from.md shows the same tables, with the files, commands, rewards and metrics of each program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

# Usual names of other programs that are too far from ours, or nearer to a wrong key (model: delta).
OTHER_NAMES: dict[str, str] = {
    **dict.fromkeys(("model", "model_name", "base_model", "model_id", "pretrain"), "model_name_or_path"),
    **dict.fromkeys(("lr", "actor_lr", "actor_learning_rate"), "learning_rate"),
    **dict.fromkeys(("batch_size", "train_batch_size", "rollout_batch_size"), "per_device_train_batch_size"),
    **dict.fromkeys(("epochs", "n_epochs"), "num_train_epochs"),
    **dict.fromkeys(("n", "group_size", "rollout_n", "num_rollouts", "n_samples_per_prompt"), "num_generations"),
    **dict.fromkeys(("max_tokens", "max_new_tokens", "max_length", "generate_max_len"), "max_completion_length"),
    **dict.fromkeys(("kl_coef", "kl_loss_coef", "init_kl_coef"), "beta"),
    **dict.fromkeys(("lora_rank", "r", "rank"), "lora_r"),
    **dict.fromkeys(("use_lora", "lora"), "use_peft"),
    **dict.fromkeys(("dataset", "data", "prompt_data"), "task"),
    **dict.fromkeys(("reward", "remote_rm_url"), "rewards"),
    **dict.fromkeys(("eval", "eval_config"), "evaluation"),
    **dict.fromkeys(("vllm", "fast_inference"), "use_vllm"),
    "max_lora_rank": "lora_r",
    "random_state": "seed",
    "clip_range": "epsilon",
    "wandb": "report_to",
    "temp": "temperature",
}

# Of the following tables, a value is a key of ours, or advice that begins with "Use", "Set" or "Remove it:".
_TOKEN = "Remove it: a recipe must hold no token. Set it in the environment"
_NO_WANDB_KEYS = "Remove it: Weights & Biases reads WANDB_PROJECT, WANDB_ENTITY and WANDB_RUN_GROUP of the environment"
_LAUNCHER = "Remove it: it is an option of accelerate launch (docs/launchers.md)"
_SANDBOX = "Remove it: programs run in the sandbox, here or where the reward's `where` says (docs/sandbox.md)"

_AWS_KEYS: dict[str, str] = {
    "tokenizer_name_or_path": "Remove it: the tokenizer is that of model_name_or_path",
    "train_dataset_id_or_path": "Use the task: section (task: {name: jsonl, path: …}, or {name: gsm8k})",
    "test_dataset_id_or_path": "Use the task: section (task: {name: jsonl, test_path: …})",
    "dataset_splits": "Use the option train_split of the task: section",
    "packing": "Remove it: GRPO samples its completions, so there is nothing to pack",
    "spectrum_config_path": "Remove it: layers can't be unfrozen by name. Set use_peft, or train all weights",
    "model_download_location": "Remove it: models go to the cache of the Hugging Face hub (HF_HOME)",
}
_OPEN_R1_KEYS: dict[str, str] = {
    "dataset_mixture": "Use the task: section with one file or dataset; join several into one JSONL file",
    "chat_template": "Remove it: the model's own chat template renders prompts. Save the model with another one",
    "dataset_configs": "Use the option subset of the task: section",
    "benchmarks": "Use the evaluation: section, or scripts/evaluate.py",
    "callbacks": "Remove it: a run saves, logs and reports by itself",
    **dict.fromkeys(
        ("hub_model_revision", "overwrite_hub_revision", "push_to_hub_revision"),
        "Remove it: push_to_hub pushes to the main branch",
    ),
    **dict.fromkeys(("wandb_entity", "wandb_project", "wandb_run_group"), _NO_WANDB_KEYS),
    **{
        f"cosine_{option}": f"Use the option {option} of the reward cosine_length"
        for option in ("min_value_wrong", "max_value_wrong", "min_value_correct", "max_value_correct", "max_len")
    },
    "repetition_n_grams": "Use the option n of the reward repetition",
    "repetition_max_penalty": "Use the option max_penalty of the reward repetition, without its minus",
    "code_language": "Use the column or the option language of the code rewards",
    "code_eval_scoring_mode": "Use the option all_or_nothing of the reward code_execution",
    "code_eval_test_batch_size": "Use the option stop_early of the reward code_execution",
    "enforce_same_language": "Remove it: each row has a language of its own",
    **dict.fromkeys(
        ("parallel_code_exec_per_proc", "e2b_router_url", "morph_router_url", "code_provider", "ioi_provider"), _SANDBOX
    ),
    "max_completion_len": "Use the option longest of the reward reasoning_length",
    "soft_punish_cache": "Use the option ramp of the reward reasoning_length",
}
_TRL_KEYS: dict[str, str] = {
    "datasets": "Use the task: section with one file or dataset; join several into one JSONL file",
    "streaming": "Remove it: a task loads all rows, so that they can be checked before training",
    "test_split_size": "Use the option test_fraction of the task: section",
    "ignore_bias_buffers": "Remove it: it works around models that are not supported",
    "env": "Set these variables in the shell before the launch",
    **dict.fromkeys(
        (
            "num_processes",
            "num_machines",
            "machine_rank",
            "main_process_ip",
            "main_process_port",
            "mixed_precision",
            "accelerate_config",
            "config_file",
        ),
        _LAUNCHER,
    ),
}

_ACTOR, _ROLLOUT, _MODEL = "actor_rollout_ref_actor_", "actor_rollout_ref_rollout_", "actor_rollout_ref_model_"
_PASS = "Use per_device_train_batch_size, the completions of a GPU and a forward pass"
_TRAIN_BATCH = "Use steps_per_generation: gradient_accumulation_steps × train batch / mini batch"
_MINI_BATCH = "Use gradient_accumulation_steps: mini batch × num_generations / (per_device_train_batch_size × GPUs)"
_OFFLOAD = "Remove it: accelerate_configs/zero2_offload.yaml offloads Adam (docs/launchers.md)"
_NO_CRITIC = "Remove it: GRPO has no critic"
# Dots are underscores: `actor_rollout_ref.actor.kl_loss_coef` in Hydra, `actor_rollout_ref_actor_kl_loss_coef` in the
# args.yaml of CodeFu-7B.
_VERL_KEYS: dict[str, str] = {
    **dict.fromkeys(("model_id", f"{_MODEL}path"), "model_name_or_path"),
    f"{_MODEL}tokenizer_path": "Remove it: the tokenizer is that of model_name_or_path",
    f"{_MODEL}trust_remote_code": "trust_remote_code",
    f"{_MODEL}enable_gradient_checkpointing": "activation_checkpointing",
    f"{_MODEL}use_remove_padding": "Remove it: TRL pads a batch to its longest completion",
    f"{_MODEL}lora_rank": "Use lora_r, with use_peft: true",
    f"{_MODEL}lora_alpha": "lora_alpha",
    f"{_MODEL}target_modules": "lora_target_modules",
    **dict.fromkeys(("train_dataset_path", "data_train_files"), "Use the option path of the task: section"),
    **dict.fromkeys(("test_dataset_path", "data_val_files"), "Use the option test_path of the task: section"),
    **dict.fromkeys(("data_train_batch_size", "per_device_train_batch_size"), _TRAIN_BATCH),
    **dict.fromkeys(("data_val_batch_size", "per_device_eval_batch_size"), "Use evaluation: {batch_size: …}"),
    "data_max_prompt_length": "Remove it: prompts are never cut. --check names those that are too long",
    "data_max_response_length": "max_completion_length",
    "data_prompt_key": "Use the option columns of the task jsonl ({prompt: THEIR NAME})",
    "data_seed": "seed",
    "algorithm_adv_estimator": "Remove it: every recipe trains with GRPO",
    "algorithm_norm_adv_by_std_in_grpo": "Use scale_rewards: group for true, none for false",
    "algorithm_use_kl_in_reward": "Use beta: the KL penalty is part of the loss, not of the reward",
    "algorithm_kl_ctrl_kl_coef": "beta",
    f"{_ACTOR}optim_lr": "learning_rate",
    **dict.fromkeys((f"{_ACTOR}optim_lr_warmup_steps", f"{_ACTOR}optim_lr_warmup_steps_ratio"), "warmup_steps"),
    **dict.fromkeys((f"{_ACTOR}optim_lr_scheduler_type", f"{_ACTOR}optim_warmup_style"), "lr_scheduler_type"),
    f"{_ACTOR}optim_weight_decay": "weight_decay",
    **dict.fromkeys((f"{_ACTOR}grad_clip", f"{_ACTOR}optim_clip_grad"), "max_grad_norm"),
    f"{_ACTOR}ppo_mini_batch_size": _MINI_BATCH,
    **dict.fromkeys((f"{_ACTOR}ppo_micro_batch_size", f"{_ACTOR}ppo_micro_batch_size_per_gpu"), _PASS),
    **dict.fromkeys((f"{_ACTOR}use_dynamic_bsz", f"{_ACTOR}ppo_max_token_len_per_gpu"), _PASS),
    f"{_ACTOR}ppo_epochs": "num_iterations",
    f"{_ACTOR}use_kl_loss": "Use beta: 0 for false",
    f"{_ACTOR}kl_loss_coef": "beta",
    f"{_ACTOR}kl_loss_type": "Set use_bias_correction_kl: false, for veRL's low_var_kl",
    **dict.fromkeys((f"{_ACTOR}clip_ratio", f"{_ACTOR}clip_ratio_low"), "epsilon"),
    f"{_ACTOR}clip_ratio_high": "epsilon_high",
    f"{_ACTOR}clip_ratio_c": "Use delta, the upper bound of the ratio where the advantage is negative",
    f"{_ACTOR}entropy_coeff": "entropy_coef",
    f"{_ACTOR}loss_agg_mode": "Use loss_type: dapo is token-mean, grpo is seq-mean-token-mean",
    f"{_ACTOR}ulysses_sequence_parallel_size": "Remove it: sequence parallelism is not supported",
    **dict.fromkeys(
        (
            f"{_ACTOR}fsdp_config_param_offload",
            f"{_ACTOR}fsdp_config_grad_offload",
            f"{_ACTOR}fsdp_config_optimizer_offload",
            "actor_rollout_ref_ref_fsdp_config_param_offload",
        ),
        _OFFLOAD,
    ),
    f"{_ROLLOUT}n": "num_generations",
    f"{_ROLLOUT}name": "Use use_vllm: true for vllm",
    f"{_ROLLOUT}temperature": "temperature",
    f"{_ROLLOUT}top_p": "top_p",
    f"{_ROLLOUT}top_k": "top_k",
    f"{_ROLLOUT}gpu_memory_utilization": "vllm_gpu_memory_utilization",
    f"{_ROLLOUT}tensor_model_parallel_size": "vllm_tensor_parallel_size",
    f"{_ROLLOUT}max_model_len": "vllm_max_model_length",
    f"{_ROLLOUT}val_kwargs_n": "Remove it: evaluation is greedy. scripts/evaluate.py --samples measures pass@k",
    **dict.fromkeys(
        (
            f"{where}log_prob_micro_batch_size{unit}"
            for where in (_ROLLOUT, "actor_rollout_ref_ref_")
            for unit in ("", "_per_gpu")
        ),
        _PASS,
    ),
    **dict.fromkeys(("critic_model_path", "critic_optim_lr", "trainer_critic_warmup"), _NO_CRITIC),
    **dict.fromkeys(
        (
            "custom_reward_function_path",
            "custom_reward_function_name",
            "reward_model_enable",
            "reward_model_reward_manager",
            "reward_custom_reward_function_path",
            "reward_custom_reward_function_name",
        ),
        "Use the rewards: list (name: path/to/file.py:function)",
    ),
    "trainer_total_epochs": "num_train_epochs",
    "trainer_total_training_steps": "max_steps",
    "trainer_save_freq": "save_steps",
    "trainer_test_freq": "Use eval_steps, with eval_strategy: steps",
    "trainer_val_before_train": "Use the evaluation: section, which measures before and after training",
    "trainer_default_local_dir": "output_dir",
    "trainer_max_actor_ckpt_to_keep": "save_total_limit",
    "trainer_resume_mode": "resume_from_checkpoint",
    "trainer_logger": "report_to",
    "trainer_experiment_name": "run_name",
    **dict.fromkeys(
        ("experiment_name", "trainer_project_name", "wandb_project"),
        "Set MLFLOW_EXPERIMENT_NAME (or WANDB_PROJECT) in the environment",
    ),
    **dict.fromkeys(("trainer_n_gpus_per_node", "trainer_nnodes"), _LAUNCHER),
    **dict.fromkeys(("token", "wandb_token"), _TOKEN),
}

# Flags of OpenRLHF, which some keep as YAML. Dots are underscores.
_OPENRLHF_KEYS: dict[str, str] = {
    **dict.fromkeys(("pretrain", "actor_model_name_or_path"), "model_name_or_path"),
    **dict.fromkeys(("prompt_data", "data_prompt_dataset"), "Use the option path of the task: section"),
    **dict.fromkeys(("prompt_split", "data_prompt_split"), "Use the option train_split of the task: section"),
    **dict.fromkeys(
        ("input_key", "label_key", "data_input_key", "data_label_key"), "Use the option columns of the task jsonl"
    ),
    "input_template": "Use the option prompt_template of the task jsonl",
    "apply_chat_template": "Use the option style of the task jsonl (style: chat)",
    **dict.fromkeys(("max_samples", "data_max_samples"), "Use the option limit_train of the task: section"),
    **dict.fromkeys(("n_samples_per_prompt", "rollout_n_samples_per_prompt"), "num_generations"),
    **dict.fromkeys(("generate_max_len", "rollout_max_new_tokens"), "max_completion_length"),
    **dict.fromkeys(
        ("prompt_max_len", "max_len"), "Remove it: prompts are never cut. --check names those that are too long"
    ),
    **dict.fromkeys(("micro_train_batch_size", "micro_rollout_batch_size"), _PASS),
    "train_batch_size": "Use gradient_accumulation_steps: train batch / (per_device_train_batch_size × GPUs)",
    "rollout_batch_size": "Use steps_per_generation, as docs/coming-from.md computes it",
    "num_episodes": "num_train_epochs",
    "max_epochs": "num_iterations",
    "actor_learning_rate": "learning_rate",
    "lr_warmup_ratio": "warmup_steps",
    "max_norm": "max_grad_norm",
    "init_kl_coef": "beta",
    "eps_clip": "epsilon",
    "advantage_estimator": "Use scale_rewards: group for group_norm, none for dr_grpo",
    **dict.fromkeys(("zero_stage", "adam_offload"), _OFFLOAD),
    "save_path": "output_dir",
    "max_ckpt_num": "save_total_limit",
    "load_checkpoint": "resume_from_checkpoint",
}


class Program(NamedTuple):
    """A program whose configurations are recognised.

    Attributes:
        name: for messages.
        marks: keys, and names in `reward_funcs`, that only its configurations have.
        keys: the successor of each of its keys that is none of ours, or means something else here.
        instead: what to do instead of converting, if scripts/convert_recipe.py can't convert its configurations.
    """

    name: str
    marks: frozenset[str]
    keys: Mapping[str, str]
    instead: str = ""


# The rewards that open-r1 knows by name.
OPEN_R1_REWARDS = (
    *("accuracy", "format", "tag_count", "reasoning_steps", "cosine", "repetition_penalty", "length", "code"),
    *("binary_code", "ioi_code", "cf_code", "code_format", "soft_overlong_punishment"),
)
AWS = Program(
    "the AWS sample grpo-with-verifiable-reward",
    frozenset({"train_dataset_id_or_path", "test_dataset_id_or_path"}),
    _AWS_KEYS,
)
OPEN_R1 = Program(
    "open-r1",
    frozenset(
        {
            "dataset_prompt_column",
            "dataset_mixture",
            "dataset_configs",
            "system_prompt",
            "benchmarks",
            "callbacks",
            "hub_model_revision",
            "wandb_entity",
            *OPEN_R1_REWARDS,
        }
    ),
    _OPEN_R1_KEYS,
)
TRL = Program("`trl grpo`", frozenset({"dataset_name", "dataset_id_or_path", "datasets", "reward_funcs"}), _TRL_KEYS)
VERL = Program(
    "veRL",
    frozenset({"actor_rollout_ref", "algorithm_adv_estimator", "data_max_response_length"}),
    _VERL_KEYS,
    "Start from recipes/codefu-deepseek-r1-distill-qwen-7b-full-vllm.yaml",
)
OPENRLHF = Program(
    "OpenRLHF",
    frozenset({"pretrain", "prompt_data", "n_samples_per_prompt", "micro_rollout_batch_size"}),
    _OPENRLHF_KEYS,
    "Start from recipes/qwen2.5-coder-7b-instruct-full-offload.yaml",
)
PROGRAMS = (
    *(AWS, OPEN_R1, TRL, VERL, OPENRLHF),
    Program(
        "Accelerate",
        frozenset({"compute_environment", "distributed_type"}),
        {},
        "Pass it to the launcher: accelerate launch --config_file FILE run_grpo.py --config RECIPE",
    ),
    Program(
        "DeepSpeed",
        frozenset({"zero_optimization"}),
        {},
        "Launch with accelerate_configs/zero2.yaml, zero2_offload.yaml or zero3.yaml (docs/launchers.md)",
    ),
)


def find_program(content: Mapping[str, Any]) -> Program | None:
    """Return the program that a configuration is for; None for a recipe of ours, or if it has no mark of any."""
    if {"task", "rewards"} & content.keys():
        return None
    rewards = content.get("reward_funcs")
    words = {*content, *(str(name) for name in (rewards if isinstance(rewards, list) else ()))}
    return next((program for program in PROGRAMS if program.marks & words), None)


def find_advice(key: str, program: Program | None = None) -> str | None:
    """Return the successor of a key, or advice on it; of any program's by default. Dots are those of nested keys."""
    tables = [one.keys for one in PROGRAMS] if program is None else [program.keys]
    return next((table[name] for table in tables if (name := key.replace(".", "_")) in table), None)
