"""Whether an adapter will sit where the recipe says: names of modules that the model hasn't, and patterns of them.

PEFT passes over a name without a match as long as another one matches, and TRL takes a list of a single name for a
pattern of whole names. What PEFT does find wrong, it finds once the weights are loaded and the base was measured.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rlvr.config.recipe import Recipe
from rlvr.config.schema import nearest
from rlvr.errors import InputError
from rlvr.modeling import loading

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig

HEAD = (
    "lora_target_modules: a LoRA on lm_head would never be applied, because TRL's loss reads the head's weight "
    "directly. Remove lm_head."
)


def target_faults(recipe: Recipe, config: PretrainedConfig | None) -> list[str]:
    """What is wrong with `lora_target_modules` and `lora_modules_to_save` for the model that the recipe names.

    Args:
        config: the model's; None where it isn't known, and only what is wrong with any model is said.
    """
    settings = recipe.settings
    targets = settings.get("lora_target_modules") or []
    if "lm_head" in ([targets] if isinstance(targets, str) else targets):
        return [HEAD]
    if config is None or settings.get("trust_remote_code"):
        return []  # its modules are known only once its code has run
    try:
        modules = dict(loading.skeleton(recipe, config).named_modules())
    except InputError as error:
        return [str(error)]
    if not settings.get("use_peft"):
        return []
    names = {name.rpartition(".")[2] for name in _linear(modules)}
    linear = sorted(names - {"lm_head", "embed_tokens"})
    has = f"{settings['model_name_or_path']} has {', '.join(linear)}."
    faults = _target_faults(recipe, config, modules, linear, has)
    saved = settings.get("lora_modules_to_save") or []
    for name in [saved] if isinstance(saved, str) else saved:
        if not any(module.endswith(name) for module in modules):
            known = sorted({module.rpartition(".")[2] for module in modules})
            faults.append(
                f"lora_modules_to_save: there is no module {name} in {settings['model_name_or_path']}"
                f"{_meant(name, known)}; PEFT would pass over it without a word. Correct or remove it."
            )
    return faults


def _target_faults(
    recipe: Recipe, config: PretrainedConfig, modules: dict[str, nn.Module], linear: list[str], has: str
) -> list[str]:
    targets = recipe.settings.get("lora_target_modules")
    if targets is None:
        from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

        if config.model_type in KNOWN or recipe.settings.get("lora_target_parameters"):
            return []
        return [
            f"lora_target_modules is not given, and PEFT has no choice of its own for models of the kind "
            f"{config.model_type}. Set it to all-linear, or to names: {has}"
        ]
    if isinstance(targets, list) and len(targets) == 1:
        targets = targets[0]  # as TRL does, and PEFT then takes it for a pattern
    if isinstance(targets, str):
        return [] if targets.lower() == "all-linear" else _pattern_faults(targets, modules, has)
    faults = []
    for name in targets:
        found = [module for module in modules if module == name or module.endswith(f".{name}")]
        if not found:
            faults.append(
                f"lora_target_modules: there is no module {name}{_meant(name, linear)}, and PEFT would pass over it "
                f"without a word. {has}"
            )
        elif wrong := [module for module in found if module not in _linear(modules)]:
            faults.append(f"lora_target_modules: {wrong[0]} is no linear layer. {has}")
    return faults


def _pattern_faults(pattern: str, modules: dict[str, nn.Module], has: str) -> list[str]:
    try:
        found = [name for name in modules if re.fullmatch(pattern, name)]
    except re.error as error:
        return [f"lora_target_modules: {pattern!r} is no regular expression ({error}). Write names, two or more. {has}"]
    if not found:
        return [
            f"lora_target_modules: {pattern!r} alone is a pattern of whole names (such as "
            f"{max(_linear(modules), key=len)}), and matches none. Write '.*{pattern}' if that is what a name ends in, "
            f"or name several. {has}"
        ]
    if "lm_head" in found:
        return [HEAD]
    wrong = [name for name in found if name not in _linear(modules)]
    if wrong:
        return [f"lora_target_modules: {pattern!r} matches {wrong[0] or 'the whole model'}, no linear layer. {has}"]
    return []


def _linear(modules: dict[str, nn.Module]) -> list[str]:
    """The modules that a LoRA can sit on, as PEFT sees it."""
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    kinds = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.MultiheadAttention, Conv1D)
    return [name for name, module in modules.items() if isinstance(module, kinds)]


def _meant(name: str, known: list[str]) -> str:
    close = nearest(name, known)
    return f" (did you mean {close[0]}?)" if close else ""
