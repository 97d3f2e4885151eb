"""The model card (README.md) of trained weights: base model, dataset, reward, and the result with its interval.

It replaces the cards of TRL and PEFT, which name a local base model as "None" or by its path on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.artifacts.directory import versions
from rlvr.artifacts.evaluation_summary import score_of, table, verdict
from rlvr.config.recipe import Recipe
from rlvr.health.run_metrics import short_name
from rlvr.modeling.loading import find_model

_CARD = """---
{metadata}
---

# {name}

{kind} {base}, trained with [GRPO](https://huggingface.co/papers/2402.03300) and [TRL](https://github.com/huggingface/trl).

| | |
|---|---|
| base model | {base} |
| dataset | {dataset} |
| reward | {reward} |
| versions | {versions} |

The run's `recipe.yaml` has every setting.

## Result

{result}

## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{name}")  # this folder, or its id on the hub
tokenizer = AutoTokenizer.from_pretrained("{name}")
```
"""


def model_card(recipe: Recipe, evaluation: Mapping[str, Any] | None = None) -> str:
    """Format a model card, without paths of this machine.

    Args:
        evaluation: the content of evaluation.json, if the weights were measured.
    """
    model = str(recipe.settings["model_name_or_path"])
    is_local = Path(find_model(model)).is_dir()
    base = Path(model).name if is_local else f"[{model}](https://huggingface.co/{model})"
    is_adapter = bool(recipe.settings.get("use_peft"))
    options = {key: without_folder(value) for key, value in recipe.task.options.items() if value is not None}
    listed = ", ".join(f"{key} {value}" for key, value in options.items())
    return _CARD.format(
        metadata=_metadata(recipe, None if is_local else model, is_adapter, evaluation),
        name=recipe.output_dir.name,
        kind="A LoRA adapter of" if is_adapter else "A fine-tuned version of",
        base=base,
        dataset=f"{short_name(recipe.task.name)}{f' ({listed})' if listed else ''}",
        reward=" + ".join(f"{spec.weight:g} × {short_name(spec.name)}" for spec in recipe.rewards),
        versions=", ".join(f"{name} {version}" for name, version in versions().items()),
        result=_result(evaluation),
    )


def _metadata(recipe: Recipe, base: str | None, is_adapter: bool, evaluation: Mapping[str, Any] | None) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    task, trained = short_name(recipe.task.name), score_of(evaluation, "trained")
    results = []
    if evaluation is not None and trained is not None:
        result = EvalResult(
            task_type="text-generation",
            dataset_type=task,
            dataset_name=task,
            dataset_split=evaluation.get("split"),
            metric_type="accuracy",
            metric_value=trained["accuracy"],
        )
        results.append(result)
    tags = ["grpo", "trl", *(["lora"] if is_adapter else [])]
    data = ModelCardData(
        model_name=recipe.output_dir.name,
        base_model=base,
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag="text-generation",
        tags=tags,
        eval_results=results or None,
    )
    return str(data.to_yaml())


def _result(evaluation: Mapping[str, Any] | None) -> str:
    outcome, figures = verdict(evaluation), table(evaluation)
    parts = [outcome.sentence]
    if figures is not None:
        rows = [("", *figures.header), ("---",) * (len(figures.header) + 1), *figures.rows]
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join([*parts, *outcome.details])


def without_folder(value: Any) -> Any:
    """An option of a task, without the folders of a path."""
    is_path = isinstance(value, str) and value.startswith(("/", ".", "~"))
    return Path(value).name if is_path else value
