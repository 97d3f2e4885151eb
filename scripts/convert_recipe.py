#!/usr/bin/env python
"""Convert a configuration of the AWS sample, of open-r1 or of `trl grpo` to a recipe.

    python scripts/convert_recipe.py config_demo.yaml --out my-recipe.yaml

It prints what it mapped, what it dropped and why, and what is left to choose. Without --out, the recipe goes to
standard output. docs/migrate.md has the tables.

Exit codes: 0 converted; 2 the file can't be read or converted, or OUT exists.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.config.conversion import Conversion, convert
from rlvr.errors import InputError


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        usage="convert_recipe.py THEIR.yaml [--out RECIPE]",
        description=__doc__,
        formatter_class=console.HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("config", type=Path, metavar="THEIR.yaml", help="the configuration to convert")
    parser.add_argument("--out", type=Path, metavar="RECIPE", help="write the recipe to RECIPE, which must not exist")
    options = parser.parse_args(words)
    try:
        conversion = convert(options.config)
        if options.out is not None:
            write_new(options.out, conversion.text)
    except InputError as error:
        console.error(str(error))
        return 2
    if options.out is None:
        console.write(conversion.text, sys.stdout)
        console.error("\n".join(report(conversion)))
        return 0
    console.info(f"Converted {options.config}, a configuration of {conversion.program.name}, to {options.out}.\n")
    console.info("\n".join(report(conversion)))
    console.info(f"\nNext: python run_grpo.py --config {options.out} --check")
    return 0


def write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet.

    Raises:
        InputError: it exists, or can't be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} exists already. Name another file with --out.", kind="file-exists") from None
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}.", kind="unwritable") from error


def report(conversion: Conversion) -> list[str]:
    """The lines for the terminal: what was mapped and dropped, and what is left to choose, the most important last."""
    lines = []
    parts = {"Mapped": conversion.mapped, "Dropped": conversion.dropped, "To choose": conversion.open_points}
    width = max(len(change.key) for changes in parts.values() for change in changes if len(change.key) <= 40)
    for title, changes in parts.items():
        lines += [title, *(f"  {change.key:<{width}}   {change.text}" for change in changes), ""] if changes else []
    return lines[:-1]


if __name__ == "__main__":
    sys.exit(main())
