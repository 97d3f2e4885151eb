"""Chat prompts of an instruction and a question."""

from __future__ import annotations

from typing import Any


def build_messages(instruction: str, question: str, instruction_role: str) -> list[dict[str, Any]]:
    """Build a chat prompt: one user message, or a system message with the instruction before it."""
    if instruction_role == "system":
        return [{"role": "system", "content": instruction}, {"role": "user", "content": question}]
    return [{"role": "user", "content": f"{instruction}\n\n{question}"}]
