"""Create datasets of the reasoning-gym package, with their options checked.

The task makes rows of them; the reward calls their verifiers.
"""

from __future__ import annotations

from typing import Any

from rlvr.config import schema
from rlvr.errors import InputError


def make_dataset(name: str, options: dict[str, Any], **size_and_seed: int) -> Any:
    """Create the `ProceduralDataset` of this name.

    Raises:
        InputError: there is no such dataset, or it does not accept the options.
    """
    import dataclasses

    import reasoning_gym as package
    from reasoning_gym.composite import DatasetSpec
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        close = schema.nearest(name, DATASETS, count=3)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"It has: {', '.join(sorted(DATASETS))}."
        raise InputError(
            f"Task reasoning_gym, option dataset: reasoning-gym has no dataset {name!r}. {hint}",
            kind="invalid-value",
            key="dataset",
        )
    known = {field.name for field in dataclasses.fields(DATASETS[name][1])} - {"size", "seed"}
    for option in options:
        if option not in known:
            close = schema.nearest(option, known)
            hint = f"Did you mean {close[0]}?" if close else f"It has: {', '.join(sorted(known)) or 'none'}."
            if option in ("size", "seed"):
                hint = "Write train_rows and test_rows, or seed, under task."
            raise InputError(
                f"Task reasoning_gym: the dataset {name} has no option {option!r}. {hint}",
                kind="unknown-key",
                key=option,
            )
    try:
        if name == "composite":
            options = {**options, "datasets": [DatasetSpec(**spec) for spec in options.get("datasets", [])]}
        return package.create_dataset(name, **options, **size_and_seed)
    except (AssertionError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"Task reasoning_gym: the dataset {name} does not accept the options {options}: "
            f"{str(error) or type(error).__name__}.",
            kind="invalid-value",
            key="options",
        ) from error
