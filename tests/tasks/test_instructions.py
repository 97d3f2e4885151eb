"""What a small model copies from a prompt is no answer."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from rewards.answer_format import answer_format
from rlvr import check_answer
from rlvr.data.code.prompts import COMPLETION, FUNCTION, STDIN, build_instruction
from rlvr.verifiers.choices import read_choice
from rlvr.verifiers.completion_text import tagged_answer

TASKS = Path(__file__).resolve().parents[2] / "tasks"
PLACEHOLDERS = ("N", "(letter)", "your answer", "…", "...")
INSTRUCTIONS = [
    *(
        (name, text)
        for name in sorted(path.stem for path in TASKS.glob("[a-z]*.py"))
        if isinstance(text := getattr(importlib.import_module(f"tasks.{name}"), "INSTRUCTION", None), str)
    ),
    *(
        (f"{form}, {kind}", build_instruction(kind, "python", form))
        for form in ("fence", "tags", "tool")
        for kind in (STDIN, FUNCTION, COMPLETION)
    ),
]


@pytest.mark.parametrize(("name", "text"), INSTRUCTIONS, ids=[name for name, _ in INSTRUCTIONS])
def test_an_instruction_has_no_placeholder_for_the_answer(name: str, text: str) -> None:
    words = [word.strip("\"'<>{}") for word in text.split()]
    assert not [one for one in PLACEHOLDERS if one in words or (len(one) > 1 and one in text)], name


@pytest.mark.parametrize("name", ["competition_math", "gsm8k", "multiple_choice", "reasoning_gym"])
def test_a_copied_instruction_states_no_answer(name: str) -> None:
    """These instructions have no worked example."""
    text = importlib.import_module(f"tasks.{name}").INSTRUCTION
    assert not check_answer(text, "3").extracted
    assert not tagged_answer(text)
    assert read_choice(text, ["Rome", "Oslo", "Paris", "London"]).letter is None
    assert answer_format([""], [text]) == [0.0]
