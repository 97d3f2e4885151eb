"""The code_format reward: one code block, or thoughts and code in tags."""

from __future__ import annotations

from typing import Any

import pytest

from rewards.code_format import code_format
from tests.support.input_errors import input_error

A = "```python\nprint(1)\n```\n"

BLOCKS = [
    (A, 1.0, "one block"),
    (f"So:\n{A}It prints 1.", 1.0, "words around"),
    ("```\nprint(1)\n```", 1.0, "without a label"),
    ("~~~py\nprint(1)\n~~~", 1.0, "tildes"),
    ("<code>\nprint(1)\n</code>", 1.0, "tags"),
    (f"<code>\n{A}</code>", 1.0, "a fence in tags is one block"),
    (f"<think>{A}{A}</think>{A}", 1.0, "drafts among the thoughts"),
    (f"{A}\nQuestion: next\n{A}", 1.0, "an invented problem behind"),
    (f"I use <code>print</code> here.\n{A}", 1.0, "a word in a sentence is no block"),
    (A + "```\n```\n", 1.0, "an empty block is none"),
    (A + A, 0.0, "two blocks"),
    (A + "```text\n1\n```\n", 0.0, "a sample of the output"),
    ("<code>\nprint(1)\n</code>\n" + A, 0.0, "tags and a fence"),
    ("print(1)", 0.0, "none"),
    ("```python\nprint(1)", 0.0, "never closed"),
    (A + "```python\nprint(", 0.0, "another one never closed"),
    ("```python\n\n```", 0.0, "empty"),
    ("```cpp\nint main() {}\n```", 0.0, "another language"),
    (f"<think>{A}", 0.0, "thoughts that never end"),
    ("", 0.0, "nothing"),
]

TAGS = [
    ("<think>\nOne prints.\n</think>\n<code>\nprint(1)\n</code>", 1.0, "the form"),
    ("<think>One.</think><code>print(1)</code>\n", 1.0, "without line ends"),
    (f"<think>One.</think>\n\n<code>\n{A}</code>", 1.0, "a fence in the tags"),
    ("<think>I put it in <code> tags: <code>x</code></think><code>\nprint(1)\n</code>", 1.0, "tags in the thoughts"),
    (f"<think>{A}</think><code>\nprint(1)\n</code>", 1.0, "a draft"),
    ("<think>One.</think><code>\nprint(1)\n</code>\nQuestion: next", 1.0, "an invented problem behind"),
    ("<think>One.</think>\nHere:\n<code>\nprint(1)\n</code>", 0.0, "words between"),
    ("<think>One.</think><code>\nprint(1)\n</code> Done.", 0.0, "words behind"),
    ("So: <think>One.</think><code>\nprint(1)\n</code>", 0.0, "words before"),
    ("<code>\nprint(1)\n</code>", 0.0, "no thoughts"),
    ("<think> </think><code>\nprint(1)\n</code>", 0.0, "empty thoughts"),
    ("<think>...</think><code>\nprint(1)\n</code>", 0.0, "thoughts of dots"),
    ("<think>One.<code>\nprint(1)\n</code>", 0.0, "thoughts that never end"),
    ("<think>One.</think><code>\nprint(1)\n", 0.0, "code that never ends"),
    ("<think>One.</think><code>\n</code>", 0.0, "no code"),
    ("<think>One.</think><code>\nprint(1)\n</code><code>\nprint(2)\n</code>", 0.0, "two of them"),
    (f"<think>One.</think>{A}", 0.0, "a fence alone"),
    ("<think>One.</think><think>Two.</think><code>\nprint(1)\n</code>", 0.0, "thought twice"),
    ("<think>One.</think><code>\n```cpp\nint x;\n```\n</code>", 0.0, "another language"),
    ("<code>\nprint(1)\n</code><think>One.</think>", 0.0, "the wrong order"),
]


@pytest.mark.parametrize(
    ("style", "completion", "reward", "why"),
    [*(("block", *case) for case in BLOCKS), *(("tags", *case) for case in TAGS)],
)
def test_scores_plain_and_chat_completions_alike(style: Any, completion: str, reward: float, why: str) -> None:
    chat = [{"role": "assistant", "content": completion}]
    assert code_format(["", []], [completion, chat], style=style) == [reward, reward], why


@pytest.mark.parametrize(
    ("prompt", "opened", "style", "completion", "reward", "why"),
    [
        ("Q\n<think>\n", None, "tags", "One.</think><code>\nx\n</code>", 1.0, "seen in the prompt"),
        ("Q\n<think>\n", None, "tags", "<think>One.</think><code>\nx\n</code>", 0.0, "opened twice"),
        ("Q", True, "tags", "One.</think><code>\nx\n</code>", 1.0, "said in the recipe"),
        ("Q", None, "tags", "One.</think><code>\nx\n</code>", 0.0, "never opened"),
        ("Q\n<think>\n", None, "block", f"One.</think>{A}", 1.0, "thoughts first"),
        ("Q\n<think>\n", None, "block", A, 0.0, "thoughts that never end"),
        ("Q", True, "block", A, 0.0, "as the recipe says"),
        ("Q\n```python\n", None, "block", "print(1)\n```", 1.0, "a fence that the prompt has opened"),
    ],
)
def test_a_prefill_of_the_prompt_counts(
    prompt: Any, opened: bool | None, style: Any, completion: str, reward: float, why: str
) -> None:
    assert code_format([prompt], [completion], style=style, opened=opened) == [reward], why


def test_reasoning_content_counts_as_thoughts() -> None:
    message = {"role": "assistant", "reasoning_content": "One.", "content": "<code>\nx\n</code>"}
    assert code_format([[]], [[message]], style="tags") == [1.0]


def test_the_language_may_be_a_column() -> None:
    cpp = "```c++\nint main() {}\n```"
    assert code_format([""] * 4, [A, cpp, A, cpp], language=["python", "cpp", "cpp", None]) == [1.0, 1.0, 0.0, 0.0]
    assert code_format([""], [cpp], language="cpp") == [1.0]


def test_an_unknown_language_is_located() -> None:
    with input_error("unknown-language", "language"):
        code_format([""], [A], language="pyhton")
