"""1 if the completion gives its program in one code block, else 0.

    style: block        one fenced or <code>-tagged block, with any text around it
    style: tags         <think>thoughts</think><code>program</code> and nothing else, as in the CodeFu prompts

No program is run, so a wrong program gets this too. Keep the weight small, or gate it on `code_execution`.

Known weakness: one block with any content. Blocks that `code_execution` ignores also count: a sample of the output in a
second block costs the reward.
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
    """Check the form of the answer, without thoughts and invented next problems; with `tags` also of the thoughts.

    Args:
        prompts: strings, or lists of chat messages. Only the start of the answer is read from them.
        completions: strings, or lists of chat messages.
        language: of the program; also a column of the data. The block must not name another language.
        style: "block" or "tags".
        opened: whether the prompt has opened <think>. By default read from a prompt that is text. Training and
            evaluation add the tag that a chat template opens, unless this option is set.
        log_extra: passed by GRPOTrainer and by `scripts/score.py --why`, which alone shows the reasons.

    Returns:
        1.0 or 0.0 for each completion.

    Raises:
        InputError: a language is unknown.
    """
    languages = language if isinstance(language, list) else [language] * len(completions)
    rows = zip(completions, prompts, languages, strict=True)
    faults = [form_fault(completion, prompt, name, style, opened) for completion, prompt, name in rows]
    if log_extra is not None:
        log_extra(
            "code_format/why", [f"The form is wrong: {fault}." if fault else "The form is right." for fault in faults]
        )
    return [float(fault is None) for fault in faults]
