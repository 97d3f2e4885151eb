"""What a chat prompt asks for where a program is wanted: the words around the problem, the same in every code task.

    fence    one code block in the answer: what chat models do by themselves
    tags     <think>…</think>, then <code>…</code>: the format of the CodeFu experiment

A model whose chat template opens <think> by itself, or that always thinks, wants "fence".
"""

from __future__ import annotations

from typing import Any, Literal

Language = Literal["python", "cpp"]
AnswerFormat = Literal["fence", "tags"]

LANGUAGES = ("python", "cpp")
ANSWER_FORMATS = ("fence", "tags")
_NAMES = {"python": ("Python 3", "python"), "cpp": ("C++17", "cpp")}

STDIN = "Write a program in {language} that solves the problem. It reads standard input and writes standard output."
FUNCTION = "Write a program in {language} that defines what the task asks for. It reads nothing and prints nothing."
COMPLETION = (
    "Complete this function in {language}. Write the whole program: what is given, imports and other functions "
    "included, and the body of the function."
)
_FENCE = "Put the whole program into one code block that begins with ```{fence} and ends with ```."
_TAGS = (
    "Put your thoughts between <think> and </think>, and then the whole program, and nothing but the program, between "
    "<code> and </code>."
)


def instruction(kind: str, language: str, answer_format: str) -> str:
    """What is to be written, and how the answer should look; `kind` is one of the three above."""
    name, fence = _NAMES[language]
    how = _TAGS if answer_format == "tags" else _FENCE.format(fence=fence)
    return f"{kind.format(language=name)} {how}"


def with_starter(entry_point: str | None, question: str, starter_code: str | None) -> str:
    """A prompt in one piece: what is to be written in Python, the question, and the code to start from, if any."""
    asked = instruction(STDIN if entry_point is None else FUNCTION, "python", "fence")
    code = (starter_code or "").strip()
    start = f"\n\nStart from this code:\n\n```python\n{code}\n```" if code else ""
    if not code and entry_point is not None:
        start = f"\n\nThe function is called {entry_point}."
    return f"{asked}\n\n{question.strip()}{start}"


def as_messages(instruction: str, question: str, instruction_role: str) -> list[dict[str, Any]]:
    """The chat prompt: one user message, or the instruction as a system message in front of it."""
    if instruction_role == "system":
        return [{"role": "system", "content": instruction}, {"role": "user", "content": question}]
    return [{"role": "user", "content": f"{instruction}\n\n{question}"}]


def as_answer(program: str, answer_format: str, language: str = "python") -> str:
    """A program as the instruction asks for it."""
    if answer_format == "tags":
        return f"<think>\nThis is how.\n</think>\n<code>\n{program.strip()}\n</code>"
    return f"```{_NAMES[language][1]}\n{program.strip()}\n```"
