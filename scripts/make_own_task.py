"""Write the data of recipes/own-task-smollm2-135m-instruct-lora.yaml: messages, each with an e-mail address to find.

    python scripts/make_own_task.py                      # data/own-task/train.jsonl and test.jsonl
    python scripts/make_own_task.py --output data/other

Each row has a `message` and its `final_answer`. Held-out rows, in test.jsonl, have other templates, persons and
companies. The files are the same on each machine. docs/recipes.md says how to use your own data instead.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.data.io import write_rows

ROWS = {"train": 400, "test": 100}
FIRST_NAMES = {
    "train": "Maria James Aisha Pedro Yuki Olga Daniel Fatima Lucas Ingrid Tomas Priya Helen Samuel Nadia Victor",
    "test": "Carla Ahmed Sofia George Mei Robert Elena Kofi Julia Martin",
}
LAST_NAMES = {
    "train": "Lopez Carter Khan Silva Tanaka Petrova Weber Haddad Moreau Larsen Novak Sharma Brooks Osei Rossi Stein",
    "test": "Mendes Farouk Ricci Palmer Chen Hughes Popov Boateng Schmidt Olsen",
}
COMPANIES = {
    "train": "northwind bluepeak redwood solaris harborline greenfield ironbridge clearwater silverline oakhill",
    "test": "sunridge lakeside brightway stonegate riverton maplecraft",
}
ADDRESSES = (
    "{first}.{last}",
    "{initial}{last}",
    "{first}_{last}",
    "{first}{number}",
    "{last}.{first}",
    "{first}-{last}",
)
DOMAINS = ("{company}.example", "mail.{company}.example", "{company}-group.example")
TEMPLATES = {
    "train": (
        "This is {name} from {Company}: please send the invoice to {address} before {day}.",
        "My account {number} is locked, so write to me at {address} after {hour} pm.",
        "{name} called about order {number} and wants an answer to {address}, not a call.",
        "Our new contact at {Company} is {name} ({address}), from {day} on.",
        "Could you send the new time of the meeting to {address} by {hour} pm?",
        "The parcel {number} has not arrived, and {name} waits for news at {address} until {day}.",
        "Please remove {address} from your list, because I get {hour} letters each week.",
        "{name} works on project {number} now; write to {address} with any question.",
    ),
    "test": (
        "If {Company} still needs {number} chairs, tell {name} at {address} how to pay.",
        "My bill shows {number} euros too much, and I hope for your reply to {address} on {day}.",
        "For tickets ask {name}, whose address is {address}, until {hour} pm.",
        "Since {name} left {Company}, reports about machine {number} go to {address} instead.",
    ),
}
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")


def make_row(rng: random.Random, split: str) -> dict[str, str]:
    """Return a message of the split, and the address in it."""
    first, last = rng.choice(FIRST_NAMES[split].split()), rng.choice(LAST_NAMES[split].split())
    company = rng.choice(COMPANIES[split].split())
    address = f"{rng.choice(ADDRESSES)}@{rng.choice(DOMAINS)}".format(
        first=first.lower(), last=last.lower(), initial=first[0].lower(), number=rng.randrange(10, 100), company=company
    )
    message = rng.choice(TEMPLATES[split]).format(
        name=f"{first} {last}",
        Company=company.title(),
        address=address,
        number=rng.randrange(100, 1000),
        hour=rng.randrange(2, 12),
        day=rng.choice(DAYS),
    )
    return {"message": message, "final_answer": address}


def make_rows(split: str) -> list[dict[str, str]]:
    """Return the different rows of a split; they are the same in each call."""
    rng = random.Random(f"own task/{split}")
    rows: dict[str, dict[str, str]] = {}
    while len(rows) < ROWS[split]:
        row = make_row(rng, split)
        rows[row["message"]] = row
    return list(rows.values())


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("data/own-task"), metavar="DIR", help="the folder to write")
    options = parser.parse_args(words)
    options.output.mkdir(parents=True, exist_ok=True)
    for split in ROWS:
        write_rows(options.output / f"{split}.jsonl", make_rows(split))
        console.info(str(options.output / f"{split}.jsonl"))


if __name__ == "__main__":
    main()
