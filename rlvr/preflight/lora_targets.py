"""Whether an adapter is applied where the recipe says.

PEFT ignores a name without a match as long as another one matches. Its own errors come only after the weights are
loaded and the base is measured, so the adapter is added here to the model without weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlvr.config import schema
from rlvr.errors import Problem
from rlvr.modeling import loading
from rlvr.modeling.adapters import first_line
from rlvr.preflight.components import RunComponents

TARGETS = "lora_target_modules"
SAVED = "lora_modules_to_save"


def check_lora_targets(components: RunComponents) -> Iterator[Problem]:
    """Compare `lora_target_modules` and `lora_modules_to_save` with the modules of the model."""
    settings = components.settings
    targets, saved = settings.get(TARGETS), settings.get(SAVED)
    if "lm_head" in ([targets] if isinstance(targets, str) else targets or []):
        yield _head_problem()
        return
    if components.config is None or settings.get("trust_remote_code"):
        return  # its modules are known only after its code has run
    model = loading.skeleton(components.recipe, components.config)
    if not settings.get("use_peft"):
        return
    is_single = isinstance(targets, list) and len(targets) == 1
    modules = [name for name, _ in model.named_modules()]
    unknown = [
        _unknown(key, name, modules, settings["model_name_or_path"])
        for key, names in ((TARGETS, None if is_single else targets), (SAVED, saved))
        for name in (names if isinstance(names, list) else [])
        if not any(module == name or module.endswith(f".{name}") for module in modules)
    ]
    yield from unknown
    if unknown:
        return
    from peft import LoraConfig, get_peft_model

    # As in TRL, which unwraps a list of one. PEFT then takes the name for a pattern of whole names.
    config = LoraConfig(
        task_type="CAUSAL_LM",
        target_modules=targets[0] if is_single else targets,
        target_parameters=settings.get("lora_target_parameters"),
        modules_to_save=saved,
    )
    try:
        adapted = get_peft_model(model, config, low_cpu_mem_usage=True).targeted_module_names
    except (ValueError, re.error) as error:
        hint = f" A list of one is a pattern of whole names: write '.*{targets[0]}', or name several." * is_single
        if isinstance(targets, str) and schema.nearest(targets.lower(), ["all-linear"]):
            hint = " Did you mean all-linear?"
        yield Problem(f"{TARGETS}: PEFT refuses {targets!r}: {first_line(error)}{hint}", "refused-by-trl", TARGETS)
        return
    if "lm_head" in adapted:
        yield _head_problem()


def _head_problem() -> Problem:
    message = (
        f"{TARGETS}: a LoRA on lm_head would never be applied, because TRL's loss reads the head's weight directly. "
        "Remove lm_head."
    )
    return Problem(message, "lora-on-head", TARGETS)


def _unknown(key: str, name: str, modules: list[str], model: str) -> Problem:
    known = {module.rpartition(".")[2] for module in modules}
    message = f"{key}: there is no module {name} in {model}, and PEFT would ignore it without a message."
    return Problem(f"{message} {schema.hint(name, known)}", "unknown-module", key)
