"""Write the data of a recipe to a folder: to inspect, edit or upload it.

    python scripts/prepare_data.py --config recipes/demo-arithmetic.yaml --output data/demo
    python scripts/prepare_data.py --config recipes/x.yaml --output data/x --task.shots 4     # any recipe key
    python scripts/prepare_data.py --config recipes/x.yaml --output data/x --against humaneval --drop_overlaps
    python scripts/prepare_data.py --config recipes/x.yaml --output data/x --s3 s3://BUCKET/grpo-recipes/data/x

The folder gets a JSONL file for each split with rows (train, validation, test), and summary.json. The recipe section
that trains on the folder is printed (task: jsonl). With --against, overlaps.jsonl lists the training rows that an
evaluation set contains. --s3 uploads each split to a folder of its own, and prints the section by which a SageMaker job
reads them as channels. Exits with 2 and writes nothing if the recipe or its data is wrong.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.config.recipe import load_recipe, require_one_task
from rlvr.errors import InputError


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        epilog="Any recipe key can be overridden: --task.shots 4",
    )
    parser.add_argument("--config", type=Path, required=True, metavar="RECIPE", help="the recipe's YAML file")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the folder to write")
    parser.add_argument("--force", action="store_true", help="write into DIR even if it has files")
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="FILE_OR_TASK",
        help="compare training rows with an evaluation set: a data file, a task (humaneval), or a task with options "
        "('{name: mbpp, path: mbpp.jsonl}'), of which the test split counts; repeatable",
    )
    parser.add_argument(
        "--drop_overlaps", action="store_true", help="leave out training rows that overlap with an evaluation set"
    )
    parser.add_argument("--s3", metavar="URI", help="upload the splits below this folder in S3, for SageMaker jobs")
    options, overrides = parser.parse_known_args(sys.argv[1:] if words is None else words)
    console.silence_libraries()
    try:
        if options.drop_overlaps and not options.against:
            message = "--drop_overlaps needs an evaluation set. Add --against."
            raise InputError(message, kind="missing-key", key="against")
        if options.s3 is not None and not re.fullmatch(r"s3://[^/]+/.+", options.s3):
            message = f"--s3 {options.s3} is not a folder in S3. Name one like s3://BUCKET/grpo-recipes/data/NAME."
            raise InputError(message, kind="invalid-value", key="--s3")
        recipe = load_recipe(options.config, overrides)
        require_one_task(recipe, "prepare_data.py")
        console.error(f"{recipe.path}: loading the data of {recipe.task_name} …")
        from rlvr import prepare_data

        prepare_data.check_output(options.output, options.force)
        prepare_data.prepare(recipe, options.output, options.against, options.drop_overlaps, options.s3)
    except InputError as error:
        console.error(str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
