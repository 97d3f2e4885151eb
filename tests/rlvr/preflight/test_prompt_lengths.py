"""Prompts must leave room for a completion, and completions for an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from datasets import Dataset
from transformers import AutoTokenizer

from rlvr.config.specs import EnvironmentSpec
from rlvr.environments.loading import load_environments
from rlvr.preflight import prompt_lengths
from rlvr.preflight.prompt_lengths import PromptLengths
from tests.support.run_components import MODEL, make_components, rows

TOOL_MODEL = MODEL.parent / "tiny-tools"


def measured(train: Dataset, **settings: Any) -> PromptLengths:
    lengths = make_components(settings, train=train, test=train.select([])).prompt_lengths
    assert lengths is not None
    return lengths


@pytest.mark.parametrize(
    ("bytes_of_prompts", "settings", "rows", "why"),
    [
        ([8] * 64, {"max_completion_length": 4000}, None, "short ones"),
        ([8] * 62 + [120, 8], {"max_completion_length": 4000}, "1 of 64 train prompts are too long (rows 62,", "one"),
        ([120] * 64, {"max_completion_length": 4000}, "64 of 64 train prompts are too long (rows 0, 1, 2, 3", "all"),
        ([96] * 64, {"max_completion_length": 4000}, None, "as many tokens as there is room for"),
        ([97] * 64, {"max_completion_length": 4000}, "64 of 64", "one more"),
        ([120] * 64, {"use_vllm": True, "vllm_max_model_length": 128, "max_completion_length": 8}, None, "vLLM's room"),
        ([120] * 64, {"use_vllm": True, "vllm_max_model_length": 127, "max_completion_length": 8}, "64 of 64", "less"),
    ],
)
def test_prompts_that_leave_too_little_room_are_counted(
    bytes_of_prompts: list[int], settings: dict[str, Any], rows: str | None, why: str
) -> None:
    """The tiny model's tokenizer has a token for each digit."""
    rows_of = {"prompt": ["7" * size for size in bytes_of_prompts], "final_answer": ["2"] * len(bytes_of_prompts)}
    lengths = measured(Dataset.from_dict(rows_of), **settings)
    assert lengths.longest == max(bytes_of_prompts)
    assert [problem.kind for problem in lengths.problems] == (["prompt-too-long"] if rows else []), why
    assert rows is None or rows in lengths.problems[0].message


@pytest.mark.parametrize(
    ("prompts", "kind", "why"),
    [
        (["7", "7" * 120], "prompt-too-long", "a long one"),
        ([[{"role": role, "content": "7"}] for role in ("user", "human")], "unrenderable-prompt", "a role"),
    ],
)
def test_refused_prompts_are_named_by_their_ids(prompts: list[Any], kind: str, why: str) -> None:
    """The order of a split is not that of the file."""
    data = {"prompt": prompts, "final_answer": ["2", "2"], "id": ["mine-9", "mine-4"]}
    [problem] = measured(Dataset.from_dict(data), max_completion_length=4000).problems
    assert (problem.kind, problem.row) == (kind, 1) and "rows 1 (mine-4)" in problem.message, why


def test_prompts_are_measured_with_what_the_chat_template_adds() -> None:
    chat = Dataset.from_dict({"prompt": [[{"role": "user", "content": "7" * 80}]] * 8, "final_answer": ["2"] * 8})
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    [tokens] = {
        len(ids) for ids in tokenizer.apply_chat_template(list(chat["prompt"]), add_generation_prompt=True)["input_ids"]
    }
    for room, problems in ((tokens, 0), (tokens - 1, 1)):
        lengths = measured(chat, max_completion_length=4096 - room)
        assert len(lengths.problems) == problems and lengths.longest == tokens > 85


@pytest.mark.parametrize(
    ("message", "others", "why"),
    [
        ({"role": "human", "content": "2 + 2?"}, 0, "a role that the template refuses"),
        ({"role": "human", "content": "2 + 2?"}, 5, "shorter than the others"),
        ({"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}, 0, "parts instead of text"),
    ],
)
def test_prompts_that_the_chat_template_refuses_are_counted(message: dict[str, Any], others: int, why: str) -> None:
    prompts = [[{"role": "user", "content": "7" * 80}]] * others + [[message]] * 2
    lengths = measured(Dataset.from_dict({"prompt": prompts, "final_answer": ["2"] * len(prompts)}))
    [problem] = lengths.problems
    assert (problem.kind, problem.row, problem.key) == ("unrenderable-prompt", others, "prompt"), why


@pytest.mark.parametrize("is_chat", [False, True])
@pytest.mark.parametrize(
    ("token", "row", "why"),
    [("<image>", 62, "a token of a prompt"), ("<other>", None, "one that no prompt holds")],
)
def test_a_token_without_an_embedding_is_an_error(token: str, row: int | None, is_chat: bool, why: str) -> None:
    texts = ["7"] * 62 + ["<image>"] + ["7" * 80] * 237
    prompts = [[{"role": "user", "content": text}] if is_chat else text for text in texts]
    train = Dataset.from_dict({"prompt": prompts, "final_answer": ["2"] * 300})
    components = make_components(train=train, test=train.select([]))
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.add_tokens([f"<{n}>" for n in range(components.config.vocab_size - len(tokenizer))])
    for added in ([], [token]):
        tokenizer.add_tokens(added, special_tokens=True)
        lengths = replace(components, tokenizer=tokenizer).prompt_lengths
        found = [(problem.kind, problem.row) for problem in lengths.problems]
        assert found == ([("token-without-embedding", row)] if added and row else []), why


def test_a_padding_token_without_an_embedding_is_an_error() -> None:
    components = make_components()
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.add_tokens([f"<{n}>" for n in range(components.config.vocab_size - len(tokenizer))])
    tokenizer.add_special_tokens({"pad_token": "<own pad>"})
    [problem] = replace(components, tokenizer=tokenizer).prompt_lengths.problems
    assert (problem.kind, problem.key) == ("token-without-embedding", "model_name_or_path")


@pytest.mark.parametrize("names", [["calculator"], ["calculator", "python_sandbox"]])
def test_prompts_are_measured_with_the_descriptions_of_their_tools(names: list[str]) -> None:
    """As GRPOTrainer renders them; a row without an environment has none."""
    loaded = load_environments([EnvironmentSpec(name) for name in names])
    tokenizer = AutoTokenizer.from_pretrained(TOOL_MODEL)
    prompts = [[{"role": "user", "content": "7" * size}] for size in (8, 80, 80)]
    labels = [names[-1], names[0], None] if len(names) > 1 else names * 3
    tools = {one.label: [getattr(one.build(), tool) for tool in one.tools] for one in loaded}
    sizes = [
        len(
            tokenizer.apply_chat_template(prompt, tools=tools.get(label), add_generation_prompt=True, return_dict=False)
        )
        for prompt, label in zip(prompts, labels, strict=True)
    ]
    columns = {"environment": labels} if len(names) > 1 else {}
    train = Dataset.from_dict({"prompt": prompts, "final_answer": ["2"] * 3, **columns})
    for room in (max(sizes), max(sizes) - 1):
        components = make_components({"max_completion_length": 4096 - room}, train=train, test=train.select([]))
        lengths = replace(components, environments=loaded, tokenizer=tokenizer).prompt_lengths
        assert lengths is not None and lengths.longest == max(sizes) > 100
        assert len(lengths.problems) == (room < max(sizes))


def test_few_prompts_are_tokenised_where_all_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    tokens = prompt_lengths.prompt_tokens

    def counted(of: Any, prompts: Any, *options: Any) -> list[list[int]]:
        seen.append(len(prompts))
        return tokens(of, prompts, *options)

    monkeypatch.setattr(prompt_lengths, "prompt_tokens", counted)
    assert measured(rows(3000)).longest == 13
    assert sum(seen) == 200
