"""Building the trainer: TRL's `GRPOTrainer` with our reward policy, adapters that really learn, and stop strings.

Everything here that touches an underscore method of TRL is in `RecipeTrainer`; trl is bounded to one minor version in
pyproject.toml and tests/rlvr/test_trl_contract.py holds the signatures.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer, ModelConfig, get_peft_config, get_quantization_config
from trl.models import unwrap_model_for_generation

from rlvr import model as models
from rlvr.callbacks import MetricsFile, Progress
from rlvr.errors import InputError
from rlvr.generation import ended, generate
from rlvr.recipe import Recipe
from rlvr.rewarding import Reward, settle
from rlvr.task import Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class RecipeTrainer(GRPOTrainer):
    """`GRPOTrainer` with two departures.

    1. A reward's `None` takes its row out of the update (TRL: it counts as 0 next to another reward's number), and
       gates are applied, both after rewards were gathered, so that every rank sees the same.
    2. With `transformers` generation, plain-text prompts end at the task's stop strings. TRL passes no tokenizer to
       `generate`, without which transformers refuses `stop_strings`. Can go when huggingface/trl passes one.
    """

    def __init__(self, *args: Any, rewards: list[Reward], stop_strings: tuple[str, ...] = (), **kwargs: Any) -> None:
        self._rewards = rewards
        self._stop_strings = stop_strings
        super().__init__(*args, reward_funcs=list(rewards), **kwargs)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        raw = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        settled = settle(raw.tolist(), self._rewards)
        masked = sum(row[0] is None for row in settled) / len(settled)
        mode = "train" if self.model.training else "eval"
        self._metrics[mode]["rewards/unscored_fraction"].append(masked)
        numbers = [[torch.nan if value is None else value for value in row] for row in settled]
        return torch.tensor(numbers, dtype=raw.dtype, device=raw.device)

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, **kwargs: Any
    ) -> Any:
        if not self._stop_strings or self.use_vllm or self.use_transformers_continuous_batching:
            return super()._generate_single_turn(prompt_ids, images, multimodal_fields, num_generations, **kwargs)
        with unwrap_model_for_generation(
            self.model_wrapped,
            self.accelerator,
            gather_deepspeed3_params=self.args.ds3_gather_for_generation,
            generation_kwargs=self.generation_kwargs,
            gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
        ) as model:
            ids = generate(model, self._tokenizer, prompt_ids, self.generation_config, stop_strings=self._stop_strings)
        return ids, None

    def _generate(self, prompts: Any) -> Any:
        output = super()._generate(prompts)
        if self._stop_strings:
            # TRL counts whatever doesn't end in an end-of-sequence token as cut off; ours may end at a stop string.
            cut = [not ended(self._tokenizer, ids, self.eos_token_ids, self._stop_strings) for ids in output[1]]
            everywhere = self.accelerator.gather(torch.tensor(cut, device=self.accelerator.device))
            mode = "train" if self.model.training else "eval"
            self._metrics[mode]["completions/clipped_ratio"][-1] = everywhere.float().mean().item()
        return output


def build_trainer(
    recipe: Recipe, task: Task, rewards: list[Reward], tokenizer: PreTrainedTokenizerBase
) -> RecipeTrainer:
    """The trainer of a recipe, with its model loaded and its adapter in place; nothing is written yet but folders."""
    model_config = ModelConfig(**models.model_settings(recipe))
    trainer = RecipeTrainer(
        model=model_config.model_name_or_path,
        rewards=rewards,
        stop_strings=task.stop_strings,
        args=training_config(recipe, rewards, task.stop_strings),
        train_dataset=task.train,
        eval_dataset=task.validation if recipe.settings.get("eval_strategy", "no") != "no" else None,
        processing_class=tokenizer,
        quantization_config=get_quantization_config(model_config),
        peft_config=get_peft_config(model_config),
        callbacks=[MetricsFile(recipe.output_dir / "metrics.jsonl"), Progress()],
    )
    trainer.remove_callback(PrinterCallback)  # Progress prints what a person wants to see
    models.keep_4bit_trainable_on_cpu(trainer.model)
    if (model_config.load_in_4bit or model_config.load_in_8bit) and not trainer.is_deepspeed_enabled:
        keep_adapter_in_float32(trainer.model)
    return trainer


def training_config(recipe: Recipe, rewards: list[Reward], stop_strings: tuple[str, ...]) -> GRPOConfig:
    """TRL's `GRPOConfig` for the recipe.

    What it adds to the recipe's own keys: the weights of the rewards, how the model is loaded, whether activation
    checkpointing is reentrant, and vLLM's stop strings.
    """
    settings = recipe.settings_for("training")
    settings["reward_weights"] = [reward.weight for reward in rewards]
    settings["model_init_kwargs"] = {
        **(settings.get("model_init_kwargs") or {}),
        **models.model_init_options(recipe),
    }
    # The progress bar is ours (callbacks.Progress); transformers' own prints a dictionary a step.
    settings["disable_tqdm"] = True
    if settings["activation_checkpointing"]:
        # PEFT under ZeRO-3 needs the reentrant kind (huggingface/trl#2514); elsewhere PyTorch advises against it.
        zero3 = os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3"
        settings["activation_checkpointing_kwargs"] = {
            "use_reentrant": zero3,
            **(settings.get("activation_checkpointing_kwargs") or {}),
        }
    if settings.get("use_vllm") and stop_strings:
        settings["generation_kwargs"] = {
            "stop": list(stop_strings),
            "include_stop_str_in_output": True,
            **(settings.get("generation_kwargs") or {}),
        }
    return GRPOConfig(**settings)


def check_config(recipe: Recipe, task: Task, rewards: list[Reward]) -> None:
    """Makes TRL's own checks of the recipe before anything is loaded.

    Raises:
        InputError: with what TRL, transformers or PEFT say.
    """
    try:
        training_config(recipe, rewards, task.stop_strings)
        get_peft_config(ModelConfig(**models.model_settings(recipe)))
    except (ValueError, TypeError, ImportError) as error:
        raise InputError(f"TRL refuses this recipe: {error}") from error
    free_memory()


def keep_adapter_in_float32(model: torch.nn.Module) -> None:
    """Gives a QLoRA adapter float32 weights; to be called before the optimizer is made.

    TRL casts the adapter of a quantised model to bfloat16. DeepSpeed keeps float32 masters, plain PyTorch doesn't, and
    an update below 1/256 of a weight is then rounded away: at a learning rate of 1e-6 over 90 % of the elements did not
    change in four steps (tests/rlvr/test_training.py counts them).
    """
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def save(trainer: RecipeTrainer, recipe: Recipe) -> Path:
    """Saves what was trained: `adapter/` for a PEFT run, `model/` for full fine-tuning; returns the folder.

    Collective: every rank must call it, since under ZeRO-3 each holds a part of the weights.
    """
    folder = recipe.output_dir / ("adapter" if recipe.settings.get("use_peft") else "model")
    trainer.save_model(str(folder))
    trainer.accelerator.wait_for_everyone()
    return folder


def free_memory() -> None:
    """Returns what deleted models held, and lets later models load whole even after a ZeRO-3 run."""
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    unset_hf_deepspeed_config()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
