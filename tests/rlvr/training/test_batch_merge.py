"""Merging rollouts: padding without meaning, TRL's keys and no others, and a table that matches the tensors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import trl

from rlvr.training import batch_merge
from rlvr.training.batch_merge import CompletionTable, GroupSource
from tests.support.input_errors import input_error

PAD = 9


# ── Merging tensors ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_of_different_width_are_padded_on_their_own_side_with_what_means_nothing() -> None:
    def output(rows: int, prompt: int, completion: int, number: int) -> dict[str, torch.Tensor]:
        return {
            "prompt_ids": torch.full((rows, prompt), number),
            "prompt_mask": torch.ones(rows, prompt, dtype=torch.long),
            "completion_ids": torch.full((rows, completion), number),
            "completion_mask": torch.ones(rows, completion, dtype=torch.long),
            "tool_mask": torch.ones(rows, completion, dtype=torch.long),
            "ref_per_token_logps": torch.full((rows, completion), -0.5),
            "sampling_per_token_logps": torch.full((rows, completion), -0.5),
            "importance_sampling_ratio": torch.full((rows, completion), 0.7),
            "advantages": torch.full((rows,), float(number)),
            "num_items_in_batch": torch.tensor(1),
        }

    merged = batch_merge.merge_tensors(
        [output(2, 3, 1, 4), output(1, 2, 3, 5)],
        [GroupSource(1, 0), GroupSource(0, 1)],
        1,
        PAD,
        lambda count: 10 * count,
    )
    assert merged["prompt_ids"].tolist() == [[PAD, 5, 5], [4, 4, 4]]
    assert merged["prompt_mask"].tolist() == [[0, 1, 1], [1, 1, 1]]
    assert merged["completion_ids"].tolist() == [[5, 5, 5], [4, PAD, PAD]]
    assert merged["completion_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert merged["tool_mask"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert merged["ref_per_token_logps"].tolist() == [[-0.5, -0.5, -0.5], [-0.5, 0, 0]]
    assert merged["sampling_per_token_logps"].tolist() == [[-0.5, -0.5, -0.5], [-0.5, 0, 0]]
    ratios = [value for row in merged["importance_sampling_ratio"].tolist() for value in row]
    assert ratios == pytest.approx([0.7, 0.7, 0.7, 0.7, 1, 1])
    assert merged["advantages"].tolist() == [5.0, 4.0]
    assert merged["num_items_in_batch"].item() == 40
    assert merged.keys() == output(1, 1, 1, 0).keys()


def test_ratios_a_sequence_stay_one_a_sequence() -> None:
    outputs = [
        {"importance_sampling_ratio": torch.tensor([[0.5]])},
        {"importance_sampling_ratio": torch.tensor([[2.0]])},
    ]
    merged = batch_merge.merge_tensors(outputs, [GroupSource(1, 0)], 1, PAD, lambda count: count)
    assert merged["importance_sampling_ratio"].tolist() == [[2.0]]


def test_tokens_that_a_tool_wrote_are_not_counted() -> None:
    output = {
        "completion_mask": torch.tensor([[1, 1, 1]]),
        "tool_mask": torch.tensor([[1, 0, 1]]),
        "num_items_in_batch": torch.tensor(2.0),
    }
    merged = batch_merge.merge_tensors([output], [GroupSource(0, 0)], 1, PAD, lambda count: count)
    assert merged["num_items_in_batch"].item() == 2
    assert merged["num_items_in_batch"].dtype == torch.float32


def test_a_tensor_that_is_not_known_is_refused_by_its_name() -> None:
    output = {"advantages": torch.zeros(1), "pixel_values": torch.zeros(1, 3)}
    with input_error("unsupported-tensor", match="pixel_values"):
        batch_merge.merge_tensors([output], [GroupSource(0, 0)], 1, PAD, lambda count: count)


def test_every_tensor_that_trl_returns_is_known() -> None:
    """A contract with TRL's source: what `_generate_and_score_completions` puts into its dictionary for text."""
    source = (Path(trl.__file__).parent / "trainer" / "grpo_trainer.py").read_text(encoding="utf-8")
    part = source[source.index('        output = {\n            "prompt_ids"') :]
    part = part[: part.index("return output")]
    returned = set(re.findall(r'^            "(\w+)":', part, re.M)) | set(re.findall(r'output\["(\w+)"\]', part))
    images = {key for key in returned if re.search("pixel|image|spatial|token_type|tiles", key)}
    assert returned - images == {*batch_merge.PADDING, batch_merge.TOKENS_OF_ALL_RANKS}


def test_the_table_holds_the_chosen_groups_and_none_where_a_rollout_lacks_a_column() -> None:
    tables = [
        CompletionTable(["p00", "p01"], ["c00", "c01"], {"right": [0.0, 0.0]}, [0.0, 1.0], {}),
        CompletionTable(["p10"], ["c10"], {"right": [1.0]}, [10.0], {"note": ["seen"]}),
    ]
    merged = batch_merge.merge_tables(tables, [(0, 0), (1, 0)])
    expected = CompletionTable(
        ["p00", "p10"], ["c00", "c10"], {"right": [0.0, 1.0]}, [0.0, 10.0], {"note": [None, "seen"]}
    )
    assert merged == expected
