"""Build the trainer of a recipe, train, validate, and check that something was learnt."""

from __future__ import annotations

import functools
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from datasets import Value
from torch.distributed.tensor import DTensor
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, TrainerCallback
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from trl import ModelConfig, get_peft_config, get_quantization_config

from rlvr.artifacts.checkpoints import newest_complete
from rlvr.config.recipe import Recipe
from rlvr.config.specs import EvaluationSpec
from rlvr.data.mixture import COLUMN as TASK
from rlvr.environments.loading import COLUMN
from rlvr.environments.proxies import Environments
from rlvr.errors import FailedRun, InputError
from rlvr.evaluation.conversations import Player, player_of
from rlvr.evaluation.engines import Decoding, TransformersEngine
from rlvr.evaluation.evaluate import measure
from rlvr.evaluation.scores import by_task, summarise
from rlvr.modeling import loading as models
from rlvr.modeling.adapters import unmergeable
from rlvr.modeling.generation import template_opens_think
from rlvr.modeling.vllm_engines import sends_adapter
from rlvr.scoring.reward import RewardError, apply_gates_and_mask, metrics_of, total
from rlvr.tracking.live_trackers import watch_trackers
from rlvr.training.callbacks import MetricsFile, Progress
from rlvr.training.curriculum import easy_first
from rlvr.training.dynamic_sampling import DynamicSampler
from rlvr.training.grpo_trainer import RecipeTrainer
from rlvr.training.interruption import StopRequest, SyncedStopCallback
from rlvr.training.merged_rollouts import MergedRollouts
from rlvr.training.prepared_run import PreparedRun
from rlvr.training.reward_failures import nothing_scored
from rlvr.training.trl_config import load_in_shares, training_config
from rlvr.training.vllm_rollouts import VllmRollouts

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from trl import GRPOConfig


class TrainingError(FailedRun):
    """Training ended and nothing was learnt.

    Its kind is "nothing-scored", "zero-learning-rate", "equal-rewards" or "lost-gradient".
    """


def build_trainer(prepared: PreparedRun, card: str = "") -> RecipeTrainer:
    """Build the trainer of a run, with its model and adapter; it writes only folders.

    Args:
        card: the model card of the run and of its checkpoints.

    Raises:
        InputError: nothing would be trained.
    """
    recipe, task, rewards, scorer = prepared.recipe, prepared.task, prepared.rewards, prepared.scorer
    config = training_config(recipe, rewards, task.stop_strings)
    model_config = ModelConfig(**models.model_settings(recipe))
    run_settings = recipe.settings_for("run")
    load_in_shares(config)
    rows = _ordered_rows(task.train, run_settings["curriculum"], config, prepared.plan.steps)
    options = recipe.settings.get("chat_template_kwargs")
    scorer.think_opened = template_opens_think(prepared.tokenizer, rows[0]["prompt"], options)
    played = None
    if prepared.environments:
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # its warning that environment_factory may change
        played = Environments(recipe, prepared.environments, by_column=COLUMN in rows.column_names, rank=scorer.rank)
    validates = recipe.value("eval_strategy") != "no"
    player = player_of(recipe, prepared.tokenizer, played) if validates and played is not None else None
    validation = functools.partial(validate, prepared, player) if validates else None
    dynamic_sampler = None
    if run_settings["dynamic_sampling"]:
        (decisive,) = metrics_of(prepared.metrics)  # tasks: and dynamic_sampling exclude each other
        decisive = decisive if decisive in rewards else max(rewards, key=lambda reward: reward.weight)
        dynamic_sampler = DynamicSampler(
            rows,
            rewards.index(decisive),
            group=config.num_generations,
            max_rounds=run_settings["dynamic_sampling"],
            seed=config.seed,
        )
    if task.mixed:
        scorer.text_columns.is_text.update(
            {name: feature == Value("string") for name, feature in rows.features.items()}
        )
    own_vllm = config.use_vllm and (config.vllm_mode == "colocate" or sends_adapter(recipe.settings))
    config.use_vllm = config.use_vllm and not own_vllm  # rlvr/training/vllm_rollouts.py says why
    trainer = RecipeTrainer(
        model=model_config.model_name_or_path,
        prepared=prepared,
        card=card,
        validation=validation,
        dynamic_sampler=dynamic_sampler,
        environments=played,
        args=config,
        train_dataset=rows,
        eval_dataset=task.validation if validation is not None else None,
        processing_class=prepared.tokenizer,
        quantization_config=get_quantization_config(model_config),
        peft_config=get_peft_config(model_config),
    )
    _finish_model(trainer, recipe, model_config)
    if own_vllm:
        trainer.generate_with(VllmRollouts(trainer, recipe.settings))
    elif not trainer.use_vllm and samples_from_copy(recipe):
        only_precise = recipe.settings["rollout_weights"] == "auto"
        trainer.merged_rollouts = MergedRollouts(trainer, only_precise=only_precise)
    return trainer


def samples_from_copy(recipe: Recipe) -> bool:
    """Whether transformers may generate from a merged copy of the model."""
    settings = recipe.settings
    wanted = settings.get("use_peft") and settings["rollout_weights"] != "adapter"
    return bool(wanted and unmergeable(settings) is None)


def _ordered_rows(rows: Dataset, curriculum: str, config: GRPOConfig, steps: int) -> Dataset:
    """The training rows in the order of the curriculum, over the whole run: one pass without shuffling."""
    if curriculum != "easy_first":
        return rows
    prompts = config.generation_batch_size // config.num_generations
    cycle = config.steps_per_generation * config.num_iterations
    generations = -(-steps * config.gradient_accumulation_steps // cycle)
    config.shuffle_dataset = False
    config.max_steps = steps  # num_train_epochs counts passes over the task's rows, not over these
    return rows.select(easy_first(rows, prompts * generations, config.seed))


def _finish_model(trainer: RecipeTrainer, recipe: Recipe, model_config: ModelConfig) -> None:
    """Mend what TRL and PEFT leave of the model, and refuse one without trainable weights."""
    trainer.remove_callback(PrinterCallback)  # callbacks.Progress prints instead
    models.keep_4bit_trainable_on_cpu(trainer.model)
    if model_config.load_in_4bit and not trainer.is_deepspeed_enabled:
        keep_adapter_in_float32(trainer.model)
    if not any(parameter.requires_grad for parameter in trainer.model.parameters()):
        raise InputError(
            f"No weight of {recipe.settings['model_name_or_path']} would be trained: all are frozen. Check that the "
            "folder is a model and not an adapter, and that lora_target_modules names modules of it.",
            kind="nothing-to-train",
            key="model_name_or_path",
        )


def train(trainer: RecipeTrainer, recipe: Recipe, stop: StopRequest, checkpoint: Path | None) -> str | None:
    """Train, from a checkpoint if one is given.

    Returns:
        Why training ended before its last step; None if it didn't.

    Raises:
        RewardError: a reward failed; a checkpoint of the last finished step is saved.
        TrainingError: all steps were made and nothing was learnt: no row was scored, or no weight changed.
    """
    synced_stop = SyncedStopCallback(stop, trainer, recipe.settings["reward_outage_timeout_s"])
    for callback in (
        _StepStates(trainer, checkpoint),
        MetricsFile(recipe.output_dir / "metrics.jsonl"),
        Progress(recipe, watch_trackers(trainer, recipe)),
        synced_stop,
    ):
        trainer.add_callback(callback)
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint is not None else None)
    except RewardError:  # all processes raise it together
        trainer.checkpoints.save_finished_step()
        raise
    if synced_stop.stopped is not None:
        return synced_stop.stopped
    _check_that_something_was_learnt(trainer)
    return None


class _StepStates(TrainerCallback):
    """Load what a checkpoint holds, or record a fingerprint of the weights before the run's first step.

    Then remember each finished step, for a checkpoint if a reward fails in the next one.

    Not before `trainer.train`: FSDP2 gives each process its share of the weights only there, and transformers loads its
    own part of the checkpoint.
    """

    def __init__(self, trainer: RecipeTrainer, checkpoint: Path | None) -> None:
        self._trainer = trainer
        self._checkpoint = checkpoint

    def on_train_begin(self, *args: Any, lr_scheduler: Any = None, **kwargs: Any) -> None:
        if self._checkpoint is None:
            self._trainer.first_weights = fingerprint(self._trainer)
            return
        self._trainer.checkpoints.load(self._checkpoint)
        scheduler = getattr(lr_scheduler, "scheduler", lr_scheduler)  # Accelerate may wrap it
        if isinstance(scheduler, LambdaLR):
            # The loaded rate is that of the earlier number of steps: 0 at the end of a linear schedule, so the first
            # step of a longer run would change nothing.
            scheduler.last_epoch -= 1
            scheduler.step()

    def on_epoch_begin(self, *args: Any, **kwargs: Any) -> None:
        self._trainer.checkpoints.remember_finished_step()

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self._trainer.checkpoints.remember_finished_step()


def fingerprint(trainer: RecipeTrainer) -> torch.Tensor:
    """Two sums over this process's share of each trained weight, which change when the weight does."""
    sums = []
    for parameter in trainer.model.parameters():
        if parameter.requires_grad:
            # Under ZeRO-3 the parameter itself is empty, and ds_tensor is its share.
            share = getattr(parameter, "ds_tensor", parameter).detach()
            if isinstance(share, DTensor):  # FSDP2
                share = share.to_local()
            sums.append(torch.stack([share.sum(dtype=torch.float64), share.float().norm().double()]))
    return torch.stack(sums).cpu()


def _check_that_something_was_learnt(trainer: RecipeTrainer) -> None:
    steps = trainer.state.global_step
    if trainer.scored_generations == 0:
        raise TrainingError(nothing_scored(f"{steps} steps", trainer.scoring_nothing), "nothing-scored")
    assert trainer.first_weights is not None  # _StepStates set it
    if trainer.any_process(not torch.equal(trainer.first_weights, fingerprint(trainer))):
        return
    lines = trainer.state.log_history
    rates = [line["learning_rate"] for line in lines if "learning_rate" in line]
    flat = [line["frac_reward_zero_std"] for line in lines if "frac_reward_zero_std" in line]
    if rates and not any(rates):
        kind = "zero-learning-rate"
        why = "The learning rate was 0 throughout: check learning_rate, lr_scheduler_type and warmup_steps."
    elif flat and min(flat) == 1:
        kind = "equal-rewards"
        why = (
            "In every group all completions got the same reward, and GRPO learns only from differences: the task is "
            "too hard or too easy for this model, or the reward is constant or does not find the answers. Read some "
            "completions (scripts/score.py --config RECIPE RUN --why 0), and see docs/monitoring.md."
        )
    else:
        kind = "lost-gradient"
        why = (
            "Rewards differed and the learning rate was not 0, so the gradient was lost: see grad_norm in "
            "metrics.jsonl, and docs/monitoring.md."
        )
    if newest_complete(Path(str(trainer.args.output_dir))):
        why += " The next run needs --resume_from_checkpoint never: this one's checkpoints are complete."
    raise TrainingError(f"No weight changed in {steps} steps, so no model was saved. {why}", kind)


def validate(
    prepared: PreparedRun,
    player: Player | None,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prefix: str,
) -> dict[str, float]:
    """Measure greedy answers to rows that training never sees, whole, per source and per task.

    Returns metrics by name: `<prefix>_reward`, `_accuracy`, `_cut_off`, `_<reward>`, `_<source>/accuracy` and
    `_tasks/<label>/accuracy`.
    Collective: every process takes a share of the rows, and all get the whole result.
    """
    recipe, task, rewards = prepared.recipe, prepared.task, prepared.rewards
    spec = recipe.evaluation or EvaluationSpec()
    records = measure(
        TransformersEngine(model, tokenizer),
        task.validation,
        rewards,
        prepared.metrics,
        prepared.scorer,
        Decoding(spec.max_new_tokens or recipe.value("max_completion_length"), task.stop_strings),
        batch_size=spec.batch_size,
        description="validating",
        template_options=recipe.settings.get("chat_template_kwargs"),
        player=player,
    )
    score = summarise(records, [reward.label for reward in rewards])
    rows = [[record[f"rewards/{reward.label}"] for reward in rewards] for record in records]
    rows = apply_gates_and_mask(rows, rewards, [record.get(TASK) for record in records])
    sums = [value for value in (total(row, rewards) for row in rows) if value is not None]
    figures = {
        f"{prefix}_accuracy": score.accuracy,
        f"{prefix}_rows": float(score.rows),
        f"{prefix}_unscored": float(score.unscored),
        f"{prefix}_cut_off": score.cut_off,
        f"{prefix}_mean_length": score.mean_tokens,
        **{f"{prefix}_{label}": value for label, value in score.rewards.items()},
        **{f"{prefix}_{source}/accuracy": part.accuracy for source, part in score.by_source.items()},
        **{
            f"{prefix}_tasks/{task}/accuracy": summarise(own, []).accuracy
            for task, own in by_task(records).items()
            if task
        },
    }
    if sums:
        figures[f"{prefix}_reward"] = sum(sums) / len(sums)
    return figures


def keep_adapter_in_float32(model: torch.nn.Module) -> None:
    """Cast a QLoRA adapter to float32; call it before the optimizer is created.

    TRL casts the adapter of a quantised model to bfloat16. DeepSpeed keeps float32 masters, plain PyTorch doesn't, and
    an update below 1/256 of a weight is then rounded away: at a learning rate of 1e-6 over 90 % of the elements did not
    change in four steps (tests/rlvr/training/test_train.py counts them).
    """
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def free_memory() -> None:
    """Free the memory of deleted models, and let later models load whole after a ZeRO-3 run."""
    unset_hf_deepspeed_config()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def saved_folder(recipe: Recipe) -> Path:
    """The folder of the trained weights: `adapter/` for a PEFT run, `model/` for full fine-tuning."""
    return recipe.output_dir / ("adapter" if recipe.settings.get("use_peft") else "model")


def save(trainer: RecipeTrainer, folder: Path, stop: StopRequest) -> None:
    """Save the trained weights and their model card; wait if the disk is full, unless a stop is requested.

    Collective: every rank must call it, since under ZeRO-3 each holds a part of the weights.
    """
    trainer.checkpoints.wait_for_room(folder, lambda: stop.reason is not None)
    trainer.save_model(str(folder))
    trainer.checkpoints.write_card(folder)
    trainer.accelerator.wait_for_everyone()
