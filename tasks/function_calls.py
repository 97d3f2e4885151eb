"""Load requests with tools and the calls that answer them: Salesforce/xlam-function-calling-60k (CC-BY-4.0).

The hub requires an account that has accepted the dataset's terms: log in with `hf auth login`. The tools describe
arguments as {"city": {"type": "str, optional", "default": "Oslo"}}. The task turns them into a JSON Schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from rlvr import Task
from rlvr.data.io import Row, read_splits
from rlvr.data.row_conversion import build_messages
from rlvr.data.splits import to_datasets
from rlvr.data.usable_rows import usable_rows
from rlvr.verifiers.function_calls import read_calls, read_tools, reference_fault
from rlvr.verifiers.json_value import InvalidJson, InvalidSchema, from_column

HUB_DATASET = "Salesforce/xlam-function-calling-60k"
# The form of Hermes and Qwen. Their chat templates have similar words.
INSTRUCTION = """You may call one or more functions to answer the user. These are their signatures:
<tools>
{tools}
</tools>

For each call, write a JSON object with the name and the arguments of the function within tags, for example:
<tool_call>
{{"name": "multiply", "arguments": {{"left": 3, "right": 4}}}}
</tool_call>"""
# Python's names, as far as the data uses them. Other types stay open.
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}
_TYPES |= {name: name for name in _TYPES.values()}  # JSON Schema's own


def function_calls(
    *,
    path: str | None = None,
    instruction_role: Literal["system", "user"] = "system",
    test_fraction: float = 0.02,
    limit_train: int | None = 10_000,
    limit_test: int | None = 500,
    seed: int = 42,
) -> Task:
    """Load requests as chat prompts that list the tools.

    Args:
        path: a file, a folder with a train file and an optional test file, or a dataset of the hub. The columns are
            query, tools and answers (JSON text or values). None downloads the dataset, or uses the cached copy.
        instruction_role: role of the message with the tools. "user" is for chat templates without a system turn.
        test_fraction: share of the rows to hold out if the data has no test split.
        limit_train, limit_test: maximum number of usable rows of a split, drawn at random. None for all.
        seed: seed of all random choices.

    Rows have `prompt`, `question`, `tools` and `calls` (JSON text), `source` and `id`. Rows are left out if their calls
    name an unknown function or argument, or violate its schema.
    """
    name, source = "function_calls", path or HUB_DATASET

    def convert(row: Row, number: int, split: str) -> Row | str:
        try:
            tools = [_as_tool(tool) for tool in from_column(row["tools"])]
            calls = read_calls(row["answers"])
            if reference_fault(calls, read_tools(tools), alternatives=False):
                return "calls that their tools don't allow"
        except (InvalidJson, InvalidSchema, TypeError):
            return "tools or calls that can't be read"
        question = row["query"].strip()
        listed = INSTRUCTION.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
        return {
            "prompt": build_messages(listed, question, instruction_role),
            "question": question,
            "tools": json.dumps(tools, ensure_ascii=False),
            "calls": json.dumps([asdict(call) for call in calls], ensure_ascii=False),
            "source": source,
            "id": f"{Path(source).name}-{split}-{row.get('id', number)}",
        }

    splits, notes = usable_rows(
        name,
        source,
        read_splits(name, path, HUB_DATASET),
        ("query", "tools", "answers"),
        convert,
        test_fraction=test_fraction,
        limit_train=limit_train,
        limit_test=limit_test,
        seed=seed,
    )
    return Task(**to_datasets(**splits), notes=tuple(notes), gold=_gold, answer="calls")


def _as_tool(tool: Any) -> dict[str, Any]:
    """Return a tool with a JSON Schema as its parameters."""
    function = dict(tool.get("function", tool) if isinstance(tool, dict) else {})
    parameters = function.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InvalidSchema("is no object")
    if parameters.get("type") != "object" or "properties" not in parameters:
        required = [name for name, argument in parameters.items() if _is_required(argument)]
        properties = {name: _as_schema(argument) for name, argument in parameters.items()}
        function["parameters"] = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": function}


def _is_required(argument: Any) -> bool:
    return isinstance(argument, dict) and "default" not in argument and "optional" not in str(argument.get("type"))


def _as_schema(argument: Any) -> dict[str, Any]:
    if not isinstance(argument, dict):
        raise InvalidSchema("has an argument that is no object")
    word = re.match(r"\w+", str(argument.get("type", "")))
    known = _TYPES.get(word[0].lower()) if word else None
    kept = {key: argument[key] for key in ("description", "default", "enum") if key in argument}
    return {"type": known, **kept} if known else kept


def _gold(row: Mapping[str, Any]) -> str:
    calls = [json.dumps(call, ensure_ascii=False) for call in json.loads(row["calls"])]
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)
