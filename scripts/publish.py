"""Publish the model of a run on the Hugging Face hub, with a card written from the run's files.

    python scripts/publish.py runs/my-run --repo user/name --dry_run     # list, scan and card; sends nothing
    python scripts/publish.py runs/my-run --repo user/name --private
    python scripts/publish.py exported/ --repo user/name                 # what scripts/export.py wrote

The base model of an adapter must be on the hub.

All files are listed and scanned before one is sent: a secret or a path of this machine refuses the upload. The files
arrive in one commit. After a cut connection the same command sends only what is missing. See docs/export-publish.md.

Exit codes: 0 published, or nothing against it; 2 refused before anything was sent; 1 the upload failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.errors import InputError


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=console.HelpFormatter)
    parser.add_argument("folder", type=Path, metavar="RUN_DIR", help="output_dir of a run, or a folder of an export")
    parser.add_argument("--repo", required=True, metavar="USER/NAME", help="the repository; created if there is none")
    parser.add_argument("--private", action="store_true", help="create it as a private one")
    parser.add_argument("--dry_run", action="store_true", help="print files, findings and card; ask and send nothing")
    parser.add_argument("--run_dir", type=Path, help="the run of an export, if it is neither beside it nor in runs/")
    options = parser.parse_args(words)
    console.silence_libraries()
    from rlvr.export.publish import prepare, publish

    code = 2
    try:
        with console.SlowStep(f"Reading {options.folder}"):
            publication = prepare(options.folder, options.repo, options.run_dir)
        if options.dry_run:
            console.info(f"{publication.describe()}\n\n{publication.card}")
            publication.check()
            console.info("Nothing was found that must not be uploaded. Nothing was sent.")
            return 0
        publication.check()
        code = 1
        address = publish(publication, options.repo, private=options.private or None)
    except InputError as error:
        console.error(str(error))
        return 2 if error.kind in ("hub-offline", "hub-token-missing") else code
    console.info(f"Published: {address}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
