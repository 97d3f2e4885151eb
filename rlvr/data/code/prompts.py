"""Build prompts that ask for a program; the same text in every code task.

    fence    one code block in the answer: the habit of chat models
    tags     <think>…</think>, then <code>…</code>: the format of the CodeFu experiment
    tool     a call of the tool submit, which environments for programs have

Use "fence" for a model that always thinks, or whose chat template opens <think>.
"""

from __future__ import annotations

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
_TOOL = "Submit the whole program with the tool submit."


def build_instruction(kind: str, language: str, answer_format: str) -> str:
    """Return the instruction and the answer format; `kind` is STDIN, FUNCTION or COMPLETION."""
    name, fence = _NAMES[language]
    formats = {"tags": _TAGS, "tool": _TOOL, "fence": _FENCE.format(fence=fence)}
    return f"{kind.format(language=name)} {formats[answer_format]}"


def build_prompt(entry_point: str | None, question: str, starter_code: str | None) -> str:
    """Build a text prompt for Python: the instruction, the question, and starter code if any."""
    task_instruction = build_instruction(STDIN if entry_point is None else FUNCTION, "python", "fence")
    code = (starter_code or "").strip()
    start = f"\n\nStart from this code:\n\n```python\n{code}\n```" if code else ""
    if not code and entry_point is not None:
        start = f"\n\nThe function is called {entry_point}."
    return f"{task_instruction}\n\n{question.strip()}{start}"


def format_answer(program: str, answer_format: str) -> str:
    """Format a Python program as the instruction asks for it."""
    if answer_format == "tags":
        return f"<think>\nThis is how.\n</think>\n<code>\n{program.strip()}\n</code>"
    return f"```python\n{program.strip()}\n```"
