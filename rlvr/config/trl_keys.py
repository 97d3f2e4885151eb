"""Write trl_keys.json, the keys that a recipe has from TRL: `python -m rlvr.config.trl_keys` after an upgrade of TRL.

The file holds for each field of `GRPOConfig` and `ModelConfig` the class that takes it, its type, its default and the
first sentence of its help.
rlvr/config/schema.py reads the file, because an import of TRL takes five seconds: too long for the report of a typo.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from pathlib import Path
from typing import Any

from trl import GRPOConfig, ModelConfig

FILE = Path(__file__).with_suffix(".json")


def generate() -> str:
    """Return the text of the file for the installed TRL and transformers, one key per line."""
    keys = {
        field.name: {
            "belongs_to": belongs_to,
            "annotation": inspect.formatannotation(field.type).replace("NoneType", "None"),
            **_default(field),
            "help": _help(field),
        }
        for belongs_to, config in (("training", GRPOConfig), ("model", ModelConfig))
        for field in dataclasses.fields(config)
        if field.init
    }
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(key)}" for name, key in keys.items()) + "\n}\n"


def _default(field: dataclasses.Field[Any]) -> dict[str, Any]:
    is_known = field.default is not dataclasses.MISSING and field.name != "optim"  # the version of torch decides
    return {"default": field.default} if is_known else {}


def _help(field: dataclasses.Field[Any]) -> str:
    text = " ".join(field.metadata.get("help", "").split())
    return re.split(r"(?<=[a-z`)\"])\.(?: (?=[A-Z`])|$)", text)[0].rstrip(".") + "."


if __name__ == "__main__":
    FILE.write_text(generate(), encoding="utf-8")
