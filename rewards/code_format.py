"""Reward a completion that gives its program in one code block: 1 or 0.

    style: block        one fenced or <code>-tagged block, with any text around it
    style: tags         <think>thoughts</think><code>program</code> and nothing else, as in the CodeFu prompts

No program is run, so a wrong program scores 1, too. Keep the weight small, or gate the reward on `code_execution`.

Known weaknesses: a block may have any content. A second block, such as a sample of the output, makes the reward 0,
although `code_execution` ignores that block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from rlvr.verifiers.code.code_form import form_fault


def code_format(
    prompts: list[Any],
    completions: list[Any],
    *,
    language: list[Any] | str = "python",
    style: Literal["block", "tags"] = "block",
    opened: bool | None = None,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Check the form of the answer, without invented next problems. Only `style: tags` also checks the thoughts.

    Args:
        prompts: strings, or lists of chat messages. Only the start of the answer is read from them.
        completions: strings, or lists of chat messages.
        language: language of the program, as an option or a column. The block must not name another language.
        style: "block" or "tags".
        opened: whether the prompt has opened <think>. By default, the end of the prompt decides. Training and
            evaluation add the tag that a chat template opens, unless this option is set.
        log_extra: passed by the trainer. `scripts/score.py --why` and `scripts/chat.py` show the reasons.

    Returns:
        1.0 or 0.0 for each completion.

    Raises:
        InputError: a language is unknown.
    """
    languages = language if isinstance(language, list) else [language] * len(completions)
    rows = zip(completions, prompts, languages, strict=True)
    faults = [form_fault(completion, prompt, name, style, opened) for completion, prompt, name in rows]
    if log_extra is not None:
        reasons = [f"The form is wrong: {fault}." if fault else "The form is right." for fault in faults]
        log_extra("code_format/why", reasons)
    return [float(fault is None) for fault in faults]
