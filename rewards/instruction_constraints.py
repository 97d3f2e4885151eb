"""Reward the share of verifiable instructions that an answer follows: "no commas", "at least 300 words", …

    instruction_id_list: ["punctuation:no_comma", "length_constraints:number_words"]      # columns of IFEval
    kwargs: [{}, {"relation": "at least", "num_words": 300}]

`rlvr.verifiers.instructions` lists the kinds and their rules, as in IFEval's strict accuracy (arXiv 2311.07911). The
rules read the text outside of think tags.

An answer without sense must not score: "* a" has a bullet, and "no" has no comma. An answer scores 0 in two cases:
- The answer has fewer than `least_words` different words of its own. Numbers, single letters, words that the
  instructions dictate, and passages of 8 words copied from the prompt don't count. Instructions that ask for few words
  lower the number.
- Fewer than a fifth of its words are different, because a loop can reach any length.

Known weaknesses: the reward does not read the question. One fluent paragraph in the correct form scores as much as an
answer, for every prompt. Gate the reward on a judge of the content, or keep the policy near its base model (`beta`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlvr import completion_text
from rlvr.errors import row_faults
from rlvr.verifiers.completion_text import without_thinking
from rlvr.verifiers.instructions import Instruction, read_instructions
from rlvr.verifiers.own_words import own_words

MAX_CHARACTERS = 100_000
LEAST_SHARE = 5  # one of so many words has to be different


def instruction_constraints(
    prompts: list[Any],
    completions: list[Any],
    *,
    instruction_id_list: list[Any],
    kwargs: list[Any],
    all_or_nothing: bool = False,
    least_words: int = 7,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """Return the share of instructions that are followed, 0 to 1.

    Args:
        prompts: strings, or lists of chat messages. Passages copied from them are not the answer's own.
        completions: strings, or lists of chat messages. The first 100,000 characters of an answer are read.
        instruction_id_list: for each row, the ids of its instructions.
        kwargs: for each row, a list with the arguments of each instruction, or its JSON text.
        all_or_nothing: return 1 if all instructions are followed, else 0. IFEval calls this prompt-level accuracy.
        least_words: least number of different words of its own. 0 disables this check and the loop check, as in IFEval.

    Raises:
        InputError: an id or its arguments are invalid.
    """
    scored = [
        _score(completion, prompt, read_instructions(ids, arguments), all_or_nothing, least_words)
        for completion, prompt, ids, arguments in zip(completions, prompts, instruction_id_list, kwargs, strict=True)
    ]
    if log_extra is not None:
        log_extra("instruction_constraints/why", [why for _, why in scored])
    return [reward for reward, _ in scored]


def validate_rows(*, instruction_id_list: list[Any], kwargs: list[Any], **columns: Any) -> list[str | None]:
    """Return for each row what is wrong with its instructions, or None. Called before training."""
    return row_faults(read_instructions, instruction_id_list, kwargs)


def _score(
    completion: Any, prompt: Any, instructions: list[Instruction], all_or_nothing: bool, least_words: int
) -> tuple[float, str]:
    text = without_thinking(completion_text(completion))[:MAX_CHARACTERS].strip()
    if not text:
        return 0.0, "The answer is empty."
    if least_words:
        own = own_words(text, prompt, [text for instruction in instructions for text in instruction.dictated])
        different = len(set(own))
        needed = min([least_words, *map(_few_words, instructions)])
        if different < needed or different * LEAST_SHARE < len(own):
            return 0.0, f"Of {len(own)} words of its own, {different} differ: too few, or a loop. {needed} are needed."
    followed = [instruction for instruction in instructions if instruction.is_followed(text)]
    missed = [f"Not followed: {instruction}." for instruction in instructions if instruction not in followed]
    share = len(followed) / len(instructions)
    return float(share == 1.0) if all_or_nothing else share, "\n".join(missed) or "All instructions are followed."


def _few_words(instruction: Instruction) -> float:
    """Return how many words of its own an instruction leaves an answer at least."""
    if instruction.id == "detectable_format:constrained_response":
        return 0  # the choice is all that is asked
    if instruction.id == "length_constraints:number_words" and instruction.arguments["relation"] != "at least":
        return int(instruction.arguments["num_words"]) // 2
    return float("inf")
