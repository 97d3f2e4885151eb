"""Measure how often this project's verifier refuses a right answer in a natural sentence, and credits a wrong one.

    python -m benchmarks.verify_sentences     # two minutes

Each of the 8,792 questions of GSM8K (from ../shared/data or --data FOLDER) fills 20 of the 200 templates of
sentence_templates.py with its own nouns, names and numbers, and with its gold. Each sentence is scored twice: as it is,
and with another number: one more, one less, the sign changed, or ten times as much.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sentence_templates import TEMPLATES
from rlvr.scoring.registry import task_module
from rlvr.verifiers.math import check_answer

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

_END = (
    r"(?:and|or|but|than|if|is|are|was|were|that|who|which|when|while|because|so|then|do|does|did|will|would|can|could"
    r"|has|have|had|in|on|at|for|to|from|with|by|as|each|every|per|after|before|out|away|into|over|he|she|they|it|his"
    r"|her|their|the|a|an|how|what|more|less|fewer|long|wide|wrong"
    r"|correct|correctly|instead|must|too|around|about|during|between|through|except|plus|divided|calculate|one|two|three"
    r"|four|five|six|seven|eight|nine|ten|twelve|twenty)"
)
_UNIT = re.compile(
    rf"(?<![\d.,$/])(\d[\d,]*(?:\.\d+)?) ((?:(?!{_END}\b)[A-Za-z'’&-]+)(?: (?!{_END}\b)[A-Za-z'’&-]+){{0,2}})"
)
_ASKED = re.compile(
    r"[Hh]ow (?:many|much) ((?:[A-Za-z'’&-]+ ){1,6}?)(?:does|do|did|will|would|are|is|were|was|can|could|has|have|had"
    r"|should|must|may|might|needs?)\b"
)
_TAIL = re.compile(r"\b((?:in|for|after|per|on|from|at|during|altogether)\b[^?.,]{0,40})\?\s*$")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b")
# Not units: a scale changes the number, and "of" alone begins another phrase.
_NO_UNIT = re.compile(
    r"(?:of|more|less|fewer|does|did|do|will)\b|.*\b(?:half|hundred|thousand|[mb]illion|dozen|hundredth)s?\b"
)
_BOXES = ("$\\boxed{{{}}}$", "\\boxed{{{}}}", "\\(\\boxed{{{}}}\\)", "**\\boxed{{{}}}**", "**$\\boxed{{{}}}$**")


@dataclass(frozen=True)
class Question:
    text: str
    work: str
    gold: int


def questions(folder: Path) -> list[Question]:
    one_paragraph = task_module("gsm8k").one_paragraph
    rows = []
    for split in ("train", "test"):
        for line in (folder / f"gsm8k_{split}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            work, _, gold = row["answer"].rpartition("####")
            rows.append(Question(row["question"], one_paragraph(work), int(gold.replace(",", ""))))
    return rows


def nouns(question: str, source: random.Random) -> dict[str, str]:
    """Draw the words of a question that fill a template."""
    units = [(number, words.removesuffix(" of")) for number, words in _UNIT.findall(question)]
    units = [(number, words) for number, words in units if len(words) > 2 and not _NO_UNIT.match(words)] or [
        ("3", "items")
    ]
    asked = _ASKED.search(question)
    tail = _TAIL.search(question)
    words = asked[1].strip() if asked else ""
    unit = source.choice(units)[1]
    others = [one for one in units if one[1].split()[0] != unit.split()[0]] or [("2", "other ones")]
    return {
        "unit": unit,
        "quantity": " ".join(source.choice(others)),
        "asked": words if words and not _NO_UNIT.match(words) else source.choice(units)[1],
        "tail": tail[1].strip() if tail else "in total",
        "name": source.choice(_NAME.findall(question) or ["Natalia"]),
    }


def write(template: str, words: dict[str, str], number: int, work: str, box: str, commas: bool) -> str:
    written = f"{number:,}" if commas else str(number)
    return template.format(n=written, box=box.format(written), work=work, **words)


def sentences(rows: list[Question], templates: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Yield (completion with the gold, completion with another number, gold)."""
    for place, row in enumerate(rows):
        source = random.Random(f"{seed} {place}")
        for template in source.sample(TEMPLATES, templates):
            words = nouns(row.text, source)
            box, commas = source.choice(_BOXES), source.random() < 0.5
            others = [row.gold + 1, row.gold - 1, -row.gold, 10 * row.gold]
            other = source.choice([number for number in others if number != row.gold])
            right, wrong = (write(template, words, number, row.work, box, commas) for number in (row.gold, other))
            yield right, wrong, str(row.gold)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with gsm8k_train.jsonl and gsm8k_test.jsonl")
    scored = refused = credited = 0
    for right, wrong, gold in sentences(questions(parser.parse_args().data), templates=20, seed=0):
        scored += 1
        refused += check_answer(right, gold).correct is not True
        credited += check_answer(wrong, gold).correct is not False
    print(f"{scored:,} sentences: {refused:,} right ones refused, {credited:,} wrong ones credited")


if __name__ == "__main__":
    main()
