"""Create datasets of the reasoning-gym package, with their options checked.

The task makes rows of them; the reward calls their verifiers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from rlvr.config import schema
from rlvr.data.input_checks import option_error
from rlvr.errors import InputError

TASK = "reasoning_gym"


def make_dataset(name: str, options: dict[str, Any], **size_and_seed: int) -> Any:
    """Create the `ProceduralDataset` of this name.

    Raises:
        InputError: there is no such dataset, it does not accept the options, or the package is not installed.
    """
    try:
        import reasoning_gym as package
        from reasoning_gym.composite import DatasetSpec
        from reasoning_gym.factory import DATASETS
    except ModuleNotFoundError as error:
        message = "The package reasoning-gym is not installed: pip install -e '.[reasoning-gym]' -c constraints.txt"
        raise InputError(message, kind="package-not-installed") from error

    if name not in DATASETS:
        raise option_error(TASK, "dataset", f"reasoning-gym has no dataset {name!r}. {schema.hint(name, DATASETS)}")
    known = {field.name for field in dataclasses.fields(DATASETS[name][1])} - {"size", "seed"}
    for option in options:
        if option not in known:
            message = f"Task {TASK}: the dataset {name} has no option {option!r}. {schema.hint(option, known)}"
            raise InputError(message, kind="unknown-key", key=option)
    try:
        if name == "composite":
            options = {**options, "datasets": [DatasetSpec(**spec) for spec in options.get("datasets", [])]}
        return package.create_dataset(name, **options, **size_and_seed)
    except (AssertionError, ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"the dataset {name} does not accept {options}: {str(error) or type(error).__name__}."
        raise option_error(TASK, "options", problem) from error
