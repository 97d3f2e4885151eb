"""Ask the base and the trained model of a finished run: one question per line.

    python scripts/chat.py runs/demo-arithmetic
    echo "/row 3" | python scripts/chat.py runs/demo-arithmetic

"/row N" asks a held-out row, and the metric of the run scores the answers. Ctrl-D ends. Any recipe key can be
overridden: --evaluation.max_new_tokens 400, --model_name_or_path FOLDER if the base has moved. See docs/quickstart.md.

Exit codes: 0 done, 2 the run has not finished, or its base or an option is wrong, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.errors import InputError


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=console.HelpFormatter, allow_abbrev=False, usage="%(prog)s RUN_DIR"
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="output_dir of a finished run")
    options, overrides = parser.parse_known_args(words)
    console.silence_libraries()
    try:
        console.error(f"{options.run_dir}: loading transformers …")
        from rlvr.evaluation import dialogue

        dialogue.answer_lines(dialogue.open_run(options.run_dir, overrides), typed_lines())
    except InputError as error:
        console.error(str(error))
        return 2
    except KeyboardInterrupt:
        console.error("\nStopped by Ctrl-C.")
        return 130
    return 0


def typed_lines() -> Iterator[str]:
    with suppress(EOFError):
        while True:
            if line := input("\nyou> ").strip():
                yield line


if __name__ == "__main__":
    sys.exit(main())
