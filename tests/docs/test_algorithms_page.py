"""docs/algorithms.md has the keys that were measured and that a recipe accepts; docs/benchmarks.md has the figures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from benchmarks import algorithms
from rlvr.config import schema
from rlvr.config.recipe import load_recipe
from rlvr.training.trl_config import check_config

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "algorithms.md").read_text(encoding="utf-8")
# Names and keys of the rows of the first table.
TABLE = re.findall(r"^\| \[([^\]]+)\]\([^)]*\) \| (`\w+: .*?`) \|", PAGE, re.MULTILINE)


def keys_of(cell: str) -> dict[str, Any]:
    return YAML(typ="safe").load("\n".join(re.findall(r"`(\w+: .*?)`", cell)))


def test_the_table_has_the_keys_that_were_measured() -> None:
    assert {name: keys_of(cell) for name, cell in TABLE} == {**algorithms.VARIANTS}


@pytest.mark.parametrize("variant", algorithms.VARIANTS)
def test_a_recipe_accepts_the_keys(variant: str) -> None:
    for recipe in algorithms.BUDGETS:
        path, *words = algorithms.Run(recipe, variant, 0).words()[1:]
        check_config(load_recipe(REPOSITORY / path, words), ())


def test_every_loss_type_is_described() -> None:
    assert {keys_of(cell)["loss_type"] for _, cell in TABLE} == set(schema.CHOICES["loss_type"])


def test_the_defaults_of_the_page_are_those_of_trl() -> None:
    """Of the sentence with the defaults, and of the tables with a column of defaults."""
    _, _, sentence = PAGE.partition("a recipe has the defaults of TRL:")
    written = keys_of(sentence.partition("\n\n")[0])
    cells = re.findall(r"^\| `(\w+)` \| ([\w.]+) \|", PAGE, re.MULTILINE)
    written |= {key: None if value == "none" else YAML(typ="safe").load(value) for key, value in cells}
    assert len(cells) >= 7 and len(written) >= 13
    assert written == {key: schema.defaults()[key] for key in written}


@pytest.mark.slow
def test_the_measured_table_is_that_of_the_results() -> None:
    results, page = algorithms.read_results(), algorithms.PAGE.read_text(encoding="utf-8")
    assert algorithms.table(results) in page and algorithms.renew(page, results) == page
    digests = {(result["recipe"], result["variant"], result["seed"]): result["digest"] for result in results}
    assert len(digests) == len(results), "a run is there once"


def test_completions_to_an_accuracy_are_read_between_two_validations() -> None:
    result = {"completions": [100, 200, 300], "accuracy": [0.2, 0.8, 1.0]}
    assert [algorithms.completions_to(target, result) for target in (0.1, 0.5, 0.9)] == [100, 150, 250]
    assert algorithms.completions_to(0.9, {"completions": [100], "accuracy": [0.8]}) == float("inf")


@pytest.mark.parametrize(
    ("metrics", "completions", "why"),
    [
        ({}, 64, "no dynamic sampling"),
        ({"kept_fraction": 1.0, "rounds": 1, "unfilled_groups": 0}, 64, "all groups of the first round have signal"),
        ({"kept_fraction": 8 / 11, "rounds": 2, "unfilled_groups": 0}, 88, "three groups of 8 were replaced"),
        ({"kept_fraction": 7 / 14, "rounds": 4, "unfilled_groups": 1}, 112, "one group has no signal after all rounds"),
        ({"kept_fraction": 0.0, "rounds": 4, "unfilled_groups": 8}, 256, "nothing has signal: all rounds are full"),
    ],
)
def test_discarded_completions_are_counted(metrics: dict[str, float], completions: int, why: str) -> None:
    line = {f"dynamic_sampling/{name}": value for name, value in metrics.items()}
    assert algorithms.generated_completions(line, 64) == completions, why
