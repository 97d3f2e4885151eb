"""Answers that `email_address` accepts, and texts of the prompt that it does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rewards.email_address import email_address
from rlvr.config.recipe import load_recipe
from scripts import make_own_task

REPOSITORY = Path(__file__).resolve().parents[2]
MESSAGE = "Carla Mendes left, so please write to c.mendes@lakeside.example before noon."
ADDRESS = "c.mendes@lakeside.example"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ADDRESS, 1.0),
        (f"{ADDRESS}.", 1.0),
        ("C.Mendes@Lakeside.example", 1.0),  # the case of an address does not matter
        (f"The e-mail address is: {ADDRESS}.", 1.0),
        (f"It is the last word.\n#### {ADDRESS}", 1.0),  # the last line counts
        (MESSAGE, 0.0),
        (f"write to {ADDRESS}", 0.0),  # copied
        (f"The address that you are looking for is {ADDRESS}.", 0.0),  # too long
        (f"{ADDRESS} or a@b.example", 0.0),
        (f"{ADDRESS}.com", 0.0),
        ("mendes@lakeside.example", 0.0),
        ("", 0.0),
    ],
)
def test_the_last_line_must_give_the_address_in_few_words_of_its_own(answer: str, expected: float) -> None:
    for prompt, completion in ((MESSAGE, answer), (messages(MESSAGE, "user"), messages(answer, "assistant"))):
        assert email_address([prompt], [completion], final_answer=[ADDRESS]) == [expected]


def messages(text: str, role: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text}]


@pytest.mark.parametrize("split", make_own_task.ROWS)
def test_no_line_and_no_sentence_of_any_prompt_is_accepted(split: str) -> None:
    recipe = load_recipe(REPOSITORY / "recipes" / "own-task-smollm2-135m-instruct-lora.yaml")
    template = recipe.tasks[0].options["prompt_template"]
    for row in make_own_task.make_rows(split):
        prompt = template.format(**row)
        parts = [*prompt.splitlines(), *re.split(r"(?<=[.!?;:,])\s+", prompt), prompt]
        gold = [row["final_answer"]] * (len(parts) + 1)
        rewards = email_address([prompt] * len(gold), [*parts, row["final_answer"]], final_answer=gold)
        assert rewards == [0.0] * len(parts) + [1.0]
