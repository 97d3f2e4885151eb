"""The arithmetic that continues two measured generations to a whole run."""

from __future__ import annotations

import pytest

from rlvr.preflight.projection import (
    Generation,
    Part,
    Stretch,
    project_evaluation,
    project_training,
    stretch_to,
)


def generation(seconds: float, steps: int = 4, sampling: float = 10.0, old: float = 0.0) -> Generation:
    phases = {"generation": sampling, "tools": 0.0, "rewards": 1.0, "old_log_probabilities": old}
    return Generation(steps, seconds, phases, tokens=8000.0, completions=100, longest=160, longest_prompt=40, cut_off=0)


def test_the_first_generation_counts_once_and_the_last_one_for_all_others() -> None:
    part = project_training([generation(30.0), generation(20.0)], steps=40, of_each=4, stretch=Stretch())
    assert part.seconds == part.at_maximum == pytest.approx(30 + 9 * 20)


def test_a_run_of_less_than_a_generation_costs_its_own_updates() -> None:
    assert project_training([generation(23.0)], 2, 4, Stretch()).seconds == pytest.approx(11 + 12 * 2 / 4)


def test_updates_that_were_not_made_are_added() -> None:
    # 10 s of sampling and 1 s of rewards were spent once; an update takes 3 s.
    assert generation(14.0, steps=1).whole(4, Stretch()) == pytest.approx(11 + 4 * 3)


@pytest.mark.parametrize(
    ("vllm", "sorted_rows", "expected", "update", "why"),
    [
        (False, False, 320 / 160, 360 / 200, "transformers generates until the longest completion ends"),
        (True, False, 320 / 80, 360 / 200, "vLLM fills the place of a completion that has ended"),
        (False, True, 320 / 160, 360 / 120, "micro-batches of similar completions hold little padding"),
    ],
)
def test_longer_completions_take_longer(
    vllm: bool, sorted_rows: bool, expected: float, update: float, why: str
) -> None:
    stretch = stretch_to(320, generation(20.0), vllm=vllm, sorted_rows=sorted_rows)
    assert stretch == Stretch(expected, update), why
    part = project_training([generation(20.0, old=2.0)], 4, 4, stretch)
    assert part.at_maximum == pytest.approx(10 * expected + 1 + (2 + 7) * stretch.update)
    assert part.seconds == pytest.approx(20)


def test_the_maximum_is_never_less_than_what_was_measured() -> None:
    assert stretch_to(100, generation(20.0), vllm=False, sorted_rows=False) == Stretch()


def test_an_evaluation_grows_with_its_rows() -> None:
    part = project_evaluation(Part("measured", 8.0, 12.0), 64, rows=576, times=2, samples=64)
    assert (part.seconds, part.at_maximum) == (80.0, 120.0)
