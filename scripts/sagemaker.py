#!/usr/bin/env python
"""Run a recipe as an Amazon SageMaker training job.

    python scripts/sagemaker.py plan --config RECIPE --instance_type ml.g6e.12xlarge --role ARN --region us-east-1
    python scripts/sagemaker.py submit --config RECIPE …     # the same options; refuses what plan reports as wrong
    python scripts/sagemaker.py submit --profile --config RECIPE …   # a short job: what will the run take?
    python scripts/sagemaker.py follow JOB                   # from any machine; Ctrl-C does not stop the job
    python scripts/sagemaker.py stop JOB                     # the job saves a checkpoint first
    python scripts/sagemaker.py resume JOB                   # a new job on the same checkpoints
    python scripts/sagemaker.py fetch JOB                    # download the results into the run's folder
    python scripts/sagemaker.py evaluate JOB                 # base against trained model, on this machine
    python scripts/sagemaker.py cleanup [JOB …]              # list warm pools and files in S3, ask, then delete

`plan` is offline: it uploads nothing, and needs neither credentials nor a network. JOB is a job's name or its run's
folder (runs/NAME). Any recipe key can be overridden, the sagemaker section too: --sagemaker.spot true,
--sagemaker.max_runtime_s 7200, --learning_rate 1e-5. docs/sagemaker.md describes each key.

Exit codes: 0 done; 2 invalid input, nothing was done; 1 the job failed; 75 the job was stopped and can be resumed; 130
Ctrl-C.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.errors import InputError
from rlvr.preflight import add_profile_option

SHORT_KEYS = ("role", "bucket", "region", "instance_type")


def main(words: Sequence[str] | None = None) -> int:
    # `import sagemaker` must find the SDK and not this file, in all libraries that are imported from here on.
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]
    words = sys.argv[1:] if words is None else words
    parser = _parser()
    if not words:
        parser.print_help(sys.stderr)
        return 2
    options, overrides = parser.parse_known_args(words)
    console.silence_libraries()
    if options.command in ("follow", "stop", "fetch", "cleanup") and overrides:
        parser.error(f"{options.command} has no option {' '.join(overrides)}")
    if options.command in ("plan", "submit", "resume"):
        console.error(f"{options.config or options.job}: planning and checking the job …")  # some seconds
        if not options.hub:  # the hub's libraries read this once, when they are imported
            os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # torch's compiler would load for a second
    try:
        overrides = _with_short_keys(options, overrides)
        from rlvr.sagemaker import commands

        return commands.run(options, overrides)
    except InputError as error:
        console.error(str(error))
        return 2
    except KeyboardInterrupt:
        console.error("\nEnded by Ctrl-C.")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sagemaker.py", description=__doc__, formatter_class=console.HelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add_command(name: str, summary: str, *, takes_job: bool = False) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        if takes_job:
            command.add_argument("job", metavar="JOB", help="the job's name, or its run's folder")
        return command

    def add_recipe_options(command: argparse.ArgumentParser, *, required: bool = True) -> None:
        summary = "the recipe, a YAML file" if required else "the recipe; default: JOB's"
        command.add_argument("--config", required=required, type=Path, metavar="RECIPE", help=summary)
        command.epilog = "Any recipe key may follow: --learning_rate 1e-5, --sagemaker.max_runtime_s 7200."
        for key in SHORT_KEYS:
            command.add_argument(f"--{key}", help=f"short for --sagemaker.{key}")
        command.add_argument("--hub", action="store_true", help="ask the Hugging Face hub for model and data")

    plan = add_command("plan", "show a job's request, needs, cost and problems, offline")
    add_recipe_options(plan)
    plan.add_argument("--json", action="store_true", help="print the request and the files as JSON")
    plan.add_argument("--files", action="store_true", help="list all files to upload")
    submit = add_command("submit", "start the job that plan shows")
    add_recipe_options(submit)
    submit.add_argument(
        "--allow_duplicate", action="store_true", help="start it even if a job of the same recipe is in progress"
    )
    for command in (plan, submit):
        add_profile_option(command)
    submit.add_argument("--follow", action="store_true", help="follow the job")
    resume = add_command("resume", "start a new job on the checkpoints of a stopped or failed job", takes_job=True)
    add_recipe_options(resume, required=False)
    resume.add_argument("--follow", action="store_true", help="follow the job")
    follow = add_command("follow", "show status, log and progress until the job ends", takes_job=True)
    stop = add_command("stop", "stop the job after it has saved a checkpoint", takes_job=True)
    fetch = add_command("fetch", "download and unpack the job's results", takes_job=True)
    evaluate = add_command(
        "evaluate", "evaluate base and trained model on the same held-out rows with scripts/evaluate.py", takes_job=True
    )
    for command in (follow, stop, fetch, evaluate):
        command.add_argument("--region", help="the job's region")
    for command in (fetch, evaluate):
        command.add_argument(
            "--to", type=Path, metavar="FOLDER", help="folder of the results; default: the run's folder"
        )
    fetch.add_argument("--force", action="store_true", help="replace existing files")
    fetch.add_argument("--checkpoints", action="store_true", help="download the run with its checkpoints instead")
    cleanup = add_command("cleanup", "end warm pools and delete the jobs' files in S3")
    cleanup.add_argument("jobs", nargs="*", metavar="JOB", help="default: all jobs submitted from here (runs/)")
    cleanup.add_argument("--region", help="the jobs' region")
    cleanup.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def _with_short_keys(options: argparse.Namespace, overrides: Sequence[str]) -> list[str]:
    """The recipe's overrides, then those given as short options; the others name a job's region."""
    short = []
    for key in SHORT_KEYS if hasattr(options, "config") else ():
        value = getattr(options, key)
        if value is not None:
            quoted = value.replace("'", "''")  # a YAML string, whatever it looks like
            short += [f"--sagemaker.{key}", f"'{quoted}'"]
    return [*overrides, *short]


if __name__ == "__main__":
    if sys.argv[1:2] == ["plan"]:
        gc.disable()  # it would scan all imported modules again and again, and a plan takes only seconds
    sys.exit(main())
