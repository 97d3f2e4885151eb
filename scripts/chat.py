r"""Talk to the base and the trained model of a finished run, one below the other.

    python scripts/chat.py runs/demo-arithmetic                       # type questions; Ctrl-D ends
    python scripts/chat.py runs/demo-arithmetic --row 3               # a held-out row, verified by the run's metric
    python scripts/chat.py runs/demo-arithmetic --json --reference 135 \
        --prompt "Mia has 54 shells. She finds 81 more. How many shells does she have now?"

The run's own system prompt, chat template, stop strings and decoding (greedy, as its evaluation) are used. Any recipe
key can be overridden: --evaluation.max_new_tokens 400, --model_name_or_path FOLDER if the base is elsewhere.

While you talk: /row N takes a held-out row, /reference TEXT verifies the next answers against TEXT, /new begins a new
conversation. Ctrl-C stops an answer. A run with an environment plays held-out rows alone. docs/chat.md says more.

Exit codes: 0 done, 1 the metric failed, 2 the run has not finished, or its base or an option is wrong, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.errors import InputError

if TYPE_CHECKING:
    from rlvr.evaluation.dialogue import Answer, Dialogue, Question


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=console.HelpFormatter,
        allow_abbrev=False,
        usage="%(prog)s RUN_DIR [options] [--key value …]",
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="output_dir of a finished run")
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--prompt", metavar="TEXT", help="answer this question and end")
    asked.add_argument("--row", type=int, metavar="N", help="answer a held-out row, counted from 0, and end")
    parser.add_argument("--reference", metavar="TEXT", help="with --prompt: the right answer, for the run's metric")
    parser.add_argument("--json", action="store_true", help="with --prompt or --row: print one JSON object")
    options, overrides = parser.parse_known_args(words)
    is_single = options.prompt is not None or options.row is not None
    if options.reference is not None and options.prompt is None:
        parser.error("--reference needs --prompt")
    if options.json and not is_single:
        parser.error("--json needs --prompt or --row")
    console.silence_libraries()
    try:
        from rlvr.evaluation.dialogue import find_run, open_dialogue

        recipe, weights = find_run(options.run_dir, overrides)
        console.error(f"{options.run_dir}: loading torch and transformers …")
        console.silence_loading_bars()
        with open_dialogue(recipe, weights) as dialogue:
            if not is_single:
                talk(dialogue)
                return 0
            question = dialogue.question(options.prompt, options.row, options.reference)
            answers = ask_both(dialogue, question, silent=options.json)
            if options.json:
                prompt = question.row["prompt"] if question.text is None else question.text
                content = {"run": options.run_dir.resolve().name, "row": options.row, "prompt": prompt}
                content |= {"reference": question.row.get("final_answer")}
                content |= {side: asdict(each) for side, each in answers.items()}
                console.write(json.dumps(content, indent=2, ensure_ascii=False), sys.stdout)
    except InputError as error:
        console.error(str(error))
        return 2
    except KeyboardInterrupt:
        console.error("\nStopped by Ctrl-C.")
        return 130
    except Exception as error:
        if type(error).__name__ != "RewardError":  # its module is slow to import
            raise
        console.error(str(error))
        return 1
    return 0


def talk(dialogue: Dialogue) -> None:
    """Answer what is typed, until Ctrl-D."""
    with suppress(ImportError):
        import readline  # noqa: F401  # arrow keys and a history for input()
    console.info("Ctrl-C stops an answer, Ctrl-D ends. /row N, /reference TEXT, /new (docs/chat.md).")
    reference = None
    while True:
        try:
            command, _, rest = input("\nyou> ").strip().partition(" ")
        except EOFError:
            console.info()
            return
        except KeyboardInterrupt:
            console.info("\nCtrl-D ends.")
            continue
        try:
            if command == "/new":
                dialogue.begin()
            elif command == "/reference":
                reference = rest.strip() or None
                console.info(f"verified against {reference}, until /reference" if reference else "not verified")
            elif command == "/row":
                ask_both(dialogue, dialogue.question(None, int(rest)))
            elif command.startswith("/") and command[1:].isalpha():
                console.error(f"There is no command {command}. Use /row N, /reference TEXT or /new.")
            elif command:
                ask_both(dialogue, dialogue.question(f"{command} {rest}".strip(), reference=reference))
        except KeyboardInterrupt:
            console.info("\n[stopped]")
        except ValueError:
            console.error(f"/row {rest}: give the number of a held-out row.")
        except Exception as error:
            if not isinstance(error, InputError) and type(error).__name__ != "RewardError":
                raise
            console.error(str(error))


def ask_both(dialogue: Dialogue, question: Question, *, silent: bool = False) -> dict[str, Answer]:
    """Let both models answer, and show the answers as they come."""
    from rlvr.evaluation.dialogue import SIDES
    from rlvr.rescoring.completions import visible
    from rlvr.rescoring.conversations import as_text

    def show(text: str) -> None:
        sys.stdout.write(visible(text))
        sys.stdout.flush()

    answers = {}
    if question.text is None and not silent:
        console.write(f"{console.bold('row')}\n{visible(as_text(question.row['prompt']))}", sys.stdout)
    for side in SIDES:
        streams = dialogue.player is None and not silent
        if not silent:
            console.write(f"\n{console.bold(side)}", sys.stdout)
        with console.remembered_interrupts(signal.SIGINT):
            answer = answers[side] = dialogue.ask(side, question, show if streams else None)
        if silent:
            continue
        if not streams:
            console.write(visible(as_text(answer.completion)), sys.stdout)
        verdict = {True: "right", False: "wrong", None: "not verified" if question.row else ""}[answer.correct]
        end = "" if answer.ended else ", cut off"
        console.info(console.dim(f"\n[{', '.join(filter(None, [verdict, f'{answer.tokens} tokens']))}{end}]"))
        for line in answer.why:
            console.info(console.dim(f"  {visible(line)}"))
    return answers


if __name__ == "__main__":
    sys.exit(main())
