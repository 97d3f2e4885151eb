"""What training and held-out questions have in common: against the plainest way to find out, and as a person asks."""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.data import decontamination
from rlvr.data.decontamination import extract_question, find_overlaps, split_words
from scripts.prepare_data import main
from tests.conftest import Run
from tests.support.input_errors import input_error

NUMBERS = [f"word{number}" for number in range(60)]


def text(first: int, last: int) -> str:
    return " ".join(NUMBERS[first:last])


@pytest.mark.parametrize(
    ("train", "held", "found", "why"),
    [
        (text(0, 13), text(0, 13), True, "the same"),
        (text(0, 13).upper().replace(" ", ",  "), text(0, 13), True, "case, punctuation and spacing"),
        (f"x {text(0, 13)} y", f"a {text(0, 13)} b", True, "13 words in a row"),
        (f"x {text(0, 12)} y", f"a {text(0, 12)} b", False, "12 words in a row"),
        (f"{text(0, 7)} x {text(7, 14)}", text(0, 14), False, "14 words, but not in a row"),
        (f"x {text(0, 8)} y", text(0, 8), True, "a short held-out text as a whole"),
        (text(0, 8), f"x {text(0, 8)} y z", True, "a short training text as a whole"),
        (f"x {text(0, 4)} y", text(0, 4), False, "a very short text within another"),
        ("Solve it.", "solve it", True, "very short texts that are the same"),
        (text(0, 14), text(14, 28), False, "nothing in common"),
        ("", "", False, "no words at all"),
        ("!?", text(0, 5), False, "no words on one side"),
        ("0 1 " * 20, "0 1 " * 20 + "x", False, "many words, but always the same two"),
        (f"x {text(0, 13)}", f"{text(0, 13)} {text(20, 60)} {text(14, 34)}", False, "less than a fifth of it"),
    ],
)
def test_texts_overlap_by_all_their_words_or_by_passages(train: str, held: str, found: bool, why: str) -> None:
    assert bool(find_overlaps([train], [held])) == found, why


def test_an_overlap_says_where_and_how_much() -> None:
    train = ["nothing", f"a {text(0, 15)} b {text(30, 43)}", text(0, 30)]
    held = ["something", f"{text(0, 15)} c {text(30, 43)} d", text(0, 30)]
    assert find_overlaps(train, held) == [(1, 1, 28 / 30), (1, 2, 0.5), (2, 1, 0.5), (2, 2, 1.0)]


def test_a_turn_of_phrase_does_not_count_but_the_same_text_does() -> None:
    phrase = text(0, 14)
    train = [f"{phrase} and {number}" for number in range(11)]
    assert find_overlaps(train, [f"{phrase} or not"]) == []
    assert len(find_overlaps(train[:10], [f"{phrase} or not"])) == 10
    assert [position for position, _, _ in find_overlaps(train, [f"{phrase} and 3"])] == [3]
    assert find_overlaps([text(0, 8)] * 11, [f"x {text(0, 8)} y"]) == []
    assert len(find_overlaps([text(0, 8)] * 10, [f"x {text(0, 8)} y"])) == 10


def plainly(train: list[str], held: list[str], words: int, max_texts: int) -> dict[tuple[int, int], float]:
    """The definition, word by word: the share of each pair that overlaps."""
    ours, theirs = [split_words(text) for text in train], [split_words(text) for text in held]

    def grams(text: list[str], size: int) -> dict[tuple[str, ...], list[int]]:
        found: dict[tuple[str, ...], list[int]] = {}
        for place in range(len(text) - size + 1):
            found.setdefault(tuple(text[place : place + size]), []).append(place)
        return found

    def common(size: int, text: tuple[str, ...], whole: bool) -> bool:
        having = sum(tuple(one) == text if whole else text in grams(one, size) for one in ours)
        return having > max_texts

    shares: dict[tuple[int, int], float] = {}
    for index, mine in enumerate(ours):
        for other, yours in enumerate(theirs):
            if mine == yours and mine:
                shares[index, other] = 1.0
                continue
            covered: set[int] = set()
            size = min(words, len(yours))
            passages = [(size, gram, False) for gram in grams(mine, size)] if size >= 5 else []
            passages += [(len(mine), tuple(mine), True)] if 5 <= len(mine) < words else []
            for length, gram, whole in passages:
                if len(set(gram)) >= 5 and not common(length, gram, whole):
                    for place in grams(yours, length).get(gram, []):
                        covered.update(range(place, place + length))
            if covered:
                shares[index, other] = len(covered) / len(yours)
    return shares


# Made of pieces, so that texts have passages in common, also across the border of one text and the next.
PIECES = ("a b c d e", "f g h i j", "c d e f g h", "a b c d e f g h i j k l", "x", "a a a a a a", "h i j a", "y z")
texts = st.lists(st.lists(st.sampled_from(PIECES), max_size=3).map(" ".join), max_size=6)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(texts, texts, st.integers(5, 8), st.sampled_from([1, 2, 10]))
def test_the_search_finds_what_the_definition_says(
    train: list[str], held: list[str], words: int, max_texts: int
) -> None:
    with mock.patch.multiple(decontamination, WORDS=words, MIN_SHARE=0, MAX_TEXTS=max_texts):
        found = find_overlaps(train, held)
    assert {(position, other): share for position, other, share in found} == plainly(train, held, words, max_texts)


def test_ten_thousand_texts_take_seconds() -> None:
    words = [f"w{number % 997}" for number in range(50_000)]
    train = [" ".join(words[number * 4 : number * 4 + 100 : 1 + number % 3]) for number in range(10_000)]
    held = [" ".join(words[number * 7 : number * 7 + 90 : 2]) for number in range(200)]
    start = time.monotonic()
    find_overlaps(train, held)
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    ("row", "question", "why"),
    [
        ({"question": "Q", "prompt": "P"}, "Q", "the question without the task's own words"),
        ({"text": "T", "prompt": "P"}, "T", "MBPP's name for it"),
        ({"prompt": "P"}, "P", "a plain prompt"),
        ({"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]}, "U", "what the user says"),
    ],
)
def test_what_a_row_asks_is_found(row: dict, question: str, why: str) -> None:
    assert extract_question(row, "row 0") == question, why


def test_a_row_that_asks_nothing_is_named() -> None:
    with input_error("missing-column", row=3):
        extract_question({"final_answer": "1"}, "row 3", 3)


# ----------------------------------------------------------------------------------------------------------------------
# scripts/prepare_data.py --against


RECIPE = """\
model_name_or_path: models/tiny-arithmetic
task:
  name: jsonl
  path: train.jsonl
  prompt_template: "{question}"
  test_fraction: 0
rewards:
  - name: answer_format
"""


@pytest.fixture
def prepare(call_main: Run) -> Run:
    return functools.partial(call_main, main, "--config", "recipe.yaml", "--output", "out")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    def write(name: str, rows: list[dict[str, Any]]) -> None:
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    write("train.jsonl", [{"question": text(n, n + 10), "final_answer": "1", "id": f"t{n}"} for n in range(0, 50, 10)])
    write("held.jsonl", [{"question": text(20, 30).upper(), "id": "h0"}, {"question": "unheard of", "id": "h1"}])
    write(
        "mbpp.jsonl",
        [
            {"task_id": 11, "text": text(30, 40), "code": "", "test_list": ["assert f(1)"]},
            {"task_id": 601, "text": text(0, 10), "code": "", "test_list": ["assert f(1)"]},
        ],
    )
    return tmp_path


def test_overlaps_with_files_and_tasks_are_written_counted_and_dropped_on_request(prepare: Run, folder: Path) -> None:
    against = ("--against", "held.jsonl", "--against", "{name: mbpp, path: mbpp.jsonl}")
    for drop, left in ((False, ["t0", "t10", "t20", "t30", "t40"]), (True, ["t0", "t10", "t40"])):
        result = prepare(*against, *(["--drop_overlaps", "--force"] if drop else []), cwd=folder)
        assert result.returncode == 0, result.stderr
        rows = [json.loads(line) for line in (folder / "out/train.jsonl").read_text().splitlines()]
        assert [row["id"] for row in rows] == left
        overlaps = [json.loads(line) for line in (folder / "out/overlaps.jsonl").read_text().splitlines()]
        # The task's training row t0 is not compared with: only its test split is.
        pairs = [(overlap["train_id"], overlap["against"], overlap["held_id"]) for overlap in overlaps]
        assert pairs == [("t20", "held.jsonl", "h0"), ("t30", "mbpp", "mbpp-11")]
        assert all(overlap["share"] == 1 for overlap in overlaps)
        summary = json.loads((folder / "out/summary.json").read_text())
        assert (summary["overlaps"], summary["rows"]["train"]) == (2, len(left))
        note = "with 2 of held.jsonl: 1 overlap" + (", and were dropped." if drop else ".")
        assert any(note in one for one in summary["notes"])
        assert note in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--drop_overlaps",), "--against"),
        (("--against", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--against", "humanevil"), "humanevil"),
        (("--against", "{path: x}"), "names no task"),
        (("--against", "{name: x"), "neither a data file nor a task"),
    ],
)
def test_an_evaluation_set_that_cannot_be_read_stops_before_anything_is_written(
    prepare: Run, folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    result = prepare(*arguments, cwd=folder)
    assert result.returncode == 2
    assert words in result.stderr and "Traceback" not in result.stderr
    assert not (folder / "out").exists()
