"""What is logged of a generation's rewards beside TRL's own metrics."""

from __future__ import annotations

import torch

from rlvr.training.batch_scores import BatchScores, duplicate_fraction

NAN = float("nan")


def test_masked_rows_and_rewards_of_other_tasks_count_nowhere() -> None:
    values = torch.tensor([[1.0, NAN], [0.0, NAN], [NAN, 0.5], [NAN, NAN]])
    scores = BatchScores(values, torch.tensor([2.0, 1.0]), ["right", "format"], ["sums", "sums", "words", "words"])
    assert scores.masked().tolist() == [False, False, False, True]
    assert scores.totals().tolist()[:3] == [2.0, 0.0, 0.5] and scores.totals()[3].isnan()
    assert dict(scores.metrics(["sums", "words", "absent"])) == {
        **{"reward/min": 0.0, "reward/max": 2.0},
        **{"rewards/right/min": 0.0, "rewards/right/max": 1.0, "rewards/format/min": 0.5, "rewards/format/max": 0.5},
        **{"tasks/sums/share": 0.5, "tasks/sums/reward": 1.0, "tasks/words/share": 0.5, "tasks/words/reward": 0.5},
        "tasks/absent/share": 0.0,
    }


def test_without_one_scored_row_there_are_no_extremes() -> None:
    scores = BatchScores(torch.full((2, 1), NAN), torch.ones(1), ["right"], [None, None])
    assert dict(scores.metrics([])) == {}


def test_repeated_completions_are_counted_by_group() -> None:
    assert duplicate_fraction(["a", "a", "b", "a"], 2) == 0.25
