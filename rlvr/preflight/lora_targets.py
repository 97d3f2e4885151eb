"""Whether an adapter is applied where the recipe says: names of modules that the model lacks, and patterns of them.

PEFT ignores a name without a match as long as another one matches, and TRL takes a list of a single name for a pattern
of whole names. PEFT reports its own errors only after the weights are loaded and the base is measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlvr.config.schema import nearest
from rlvr.errors import Problem
from rlvr.modeling import loading
from rlvr.preflight.components import RunComponents

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig

TARGETS = "lora_target_modules"
SAVED = "lora_modules_to_save"


def check_lora_targets(components: RunComponents) -> Iterator[Problem]:
    """Compare `lora_target_modules` and `lora_modules_to_save` with the modules of the model."""
    settings = components.settings
    targets = settings.get(TARGETS) or []
    if "lm_head" in ([targets] if isinstance(targets, str) else targets):
        yield _head_problem()
        return
    if components.config is None or settings.get("trust_remote_code"):
        return  # its modules are known only after its code has run
    modules = dict(loading.skeleton(components.recipe, components.config).named_modules())
    if not settings.get("use_peft"):
        return
    model = settings["model_name_or_path"]
    linear = sorted({name.rpartition(".")[2] for name in _linear(modules)} - {"lm_head", "embed_tokens"})
    yield from _target_problems(settings, components.config, modules, linear, f"{model} has {', '.join(linear)}.")
    saved = settings.get(SAVED) or []
    for name in [saved] if isinstance(saved, str) else saved:
        if not any(module.endswith(name) for module in modules):
            known = sorted({module.rpartition(".")[2] for module in modules})
            message = (
                f"{SAVED}: there is no module {name} in {model}{_question(name, known)}, and PEFT would ignore it "
                "without a message. Correct or remove it."
            )
            yield Problem(message, "unknown-module", SAVED)


def _head_problem() -> Problem:
    message = (
        f"{TARGETS}: a LoRA on lm_head would never be applied, because TRL's loss reads the head's weight directly. "
        "Remove lm_head."
    )
    return Problem(message, "lora-on-head", TARGETS)


def _target_problems(
    settings: Mapping[str, Any], config: PretrainedConfig, modules: dict[str, nn.Module], linear: list[str], has: str
) -> Iterator[Problem]:
    targets = settings.get(TARGETS)
    if targets is None:
        from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

        if config.model_type not in KNOWN and not settings.get("lora_target_parameters"):
            message = (
                f"{TARGETS} is missing, and PEFT has no default for models of the kind {config.model_type}. Set it to "
                f"all-linear, or to names: {has}"
            )
            yield Problem(message, "missing-key", TARGETS)
        return
    if isinstance(targets, list) and len(targets) == 1:
        targets = targets[0]  # as TRL does, and PEFT then takes it for a pattern
    if isinstance(targets, list):
        matches = {name: [one for one in modules if one == name or one.endswith(f".{name}")] for name in targets}
    elif targets.lower() == "all-linear":
        return
    else:
        try:
            matches = {targets: [module for module in modules if re.fullmatch(targets, module)]}
        except re.error as error:
            message = f"{TARGETS}: {targets!r} is no regular expression ({error}). Write names, two or more. {has}"
            yield Problem(message, "invalid-pattern", TARGETS)
            return
    for name, matching in matches.items():
        not_linear = [module for module in matching if module not in _linear(modules)]
        if "lm_head" in matching:
            yield _head_problem()
        elif not_linear:
            message = f"{TARGETS}: {name!r} matches {not_linear[0] or 'the whole model'}, no linear layer. {has}"
            yield Problem(message, "not-linear", TARGETS)
        elif not matching and isinstance(targets, list):
            message = (
                f"{TARGETS}: there is no module {name}{_question(name, linear)}, and PEFT would ignore it without a "
                f"message. {has}"
            )
            yield Problem(message, "unknown-module", TARGETS)
        elif not matching and nearest(name.lower(), ["all-linear"]):
            yield Problem(f"{TARGETS}: {name!r} matches no module. Did you mean all-linear?", "unknown-module", TARGETS)
        elif not matching:
            ending = next(iter(nearest(name, linear)), name)
            question = "" if name in linear else _question(name, linear)
            message = (
                f"{TARGETS}: TRL unwraps a list of one, so {name!r} is a pattern of whole names (such as "
                f"{max(_linear(modules), key=len)}), and matches none{question}. Write '.*{ending}' for all names that "
                f"end in {ending}, or name several. {has}"
            )
            yield Problem(message, "unknown-module", TARGETS)


def _linear(modules: dict[str, nn.Module]) -> list[str]:
    """The modules that PEFT can apply a LoRA to."""
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    kinds = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.MultiheadAttention, Conv1D)
    return [name for name, module in modules.items() if isinstance(module, kinds)]


def _question(name: str, known: list[str]) -> str:
    close = nearest(name, known)
    return f" (did you mean {close[0]}?)" if close else ""
