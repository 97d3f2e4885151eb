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
    python scripts/sagemaker.py cleanup --account            # the same for all of the project's jobs in the account

`plan` is offline: it uploads nothing, and needs neither credentials nor a network. JOB is a job's name or its run's
folder (runs/NAME). Any recipe key can be overridden, the sagemaker section too: --sagemaker.spot true,
--sagemaker.max_runtime_s 7200, --learning_rate 1e-5. docs/sagemaker.md describes each key.

Exit codes: 0 done; 2 invalid input, nothing was done; 1 the job failed; 75 the job was stopped and can be resumed; 130
Ctrl-C.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.errors import InputError
from rlvr.preflight import PROFILE_MINUTES

if TYPE_CHECKING:
    from rlvr.sagemaker.cleanup import JobResources
    from rlvr.sagemaker.job import TrainingJob
    from rlvr.sagemaker.plan import JobPlan

PROJECT = Path(__file__).resolve().parents[1]
SHORT_KEYS = ("role", "bucket", "region", "instance_type")


def main(words: Sequence[str] | None = None) -> int:
    # `import sagemaker` must find the SDK and not this file, in all libraries that are imported from here on.
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != PROJECT / "scripts"]
    words = sys.argv[1:] if words is None else words
    parser = _parser()
    if not words:
        parser.print_help(sys.stderr)
        return 2
    options, overrides = parser.parse_known_args(words)
    console.silence_libraries()
    if getattr(options, "profile_minutes", None) is not None and not (options.profile and options.profile_minutes > 0):
        parser.error("--profile_minutes needs --profile and a number above 0")
    if options.command in ("follow", "stop", "fetch", "cleanup") and overrides:
        parser.error(f"{options.command} has no option {' '.join(overrides)}")
    try:
        return int(globals()[f"_{options.command}"](options, overrides))
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
        command.add_argument(
            "--profile", action="store_true", help="a short job that measures two generations (docs/estimates.md)"
        )
        command.add_argument(
            "--profile_minutes",
            type=float,
            metavar="N",
            help=f"with --profile: end after the step that passes N minutes; default: {PROFILE_MINUTES:g}",
        )
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
    cleanup.add_argument("--account", action="store_true", help="include all other jobs of the project in the account")
    cleanup.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def _overrides(options: argparse.Namespace, overrides: Sequence[str]) -> list[str]:
    """The recipe's overrides, including those given as short options.

    Raises:
        InputError: a key is given in both forms.
    """
    short = []
    for key in SHORT_KEYS:
        value = getattr(options, key)
        if value is not None:
            if any(word.partition("=")[0] == f"--sagemaker.{key}" for word in overrides):
                message = f"--{key} is short for --sagemaker.{key}, and both are given. Remove one."
                raise InputError(message, kind="conflicting-keys", key=f"sagemaker.{key}")
            quoted = value.replace("'", "''")  # a YAML string, whatever it looks like
            short += [f"--sagemaker.{key}", f"'{quoted}'"]
    return [*overrides, *short]


def _make_plan(
    config: Path,
    overrides: Sequence[str],
    *,
    ask_hub: bool,
    checkpoints: str | None = None,
    profile_minutes: float | None = None,
) -> JobPlan:
    console.error(f"{config}: planning and checking the job …")  # some seconds
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # nothing is computed, and torch's compiler loads for a second
    from rlvr.sagemaker.plan import make_plan

    return make_plan(config, overrides, ask_hub=ask_hub, checkpoints=checkpoints, profile_minutes=profile_minutes)


def _profile_minutes(options: argparse.Namespace) -> float | None:
    return (options.profile_minutes or PROFILE_MINUTES) if options.profile else None


def _plan(options: argparse.Namespace, overrides: list[str]) -> int:
    with _make_plan(
        options.config,
        _overrides(options, overrides),
        ask_hub=options.hub,
        profile_minutes=_profile_minutes(options),
    ) as plan:
        if options.json:
            console.write(json.dumps(_as_json(plan), indent=2), sys.stdout)
        else:
            console.info("\n".join(plan.lines(all_files=options.files)))
        if plan.problems:
            console.error("\n".join(["", *map(str, plan.problems)]))
            return 2
    if not options.json:
        warned = any("warning: " in line for line in (*plan.costs, *plan.preflight))
        found = "No errors, but warnings: see above" if warned else "No problems found"
        console.info(f"  {found}; nothing was uploaded. `submit` with the same options starts the job.")
    return 0


def _as_json(plan: JobPlan) -> dict[str, object]:
    has_secret = any(problem.kind == "secret-in-request" for problem in plan.problems)
    return {
        "request": None if has_secret else plan.request,  # logs keep what is printed
        "files": [{"name": f"{file.channel}/{file.name}", "bytes": file.size, "to": uri} for file, uri in plan.uploads],
        "problems": [problem.as_dict() for problem in plan.problems],
    }


def _submit(options: argparse.Namespace, overrides: list[str]) -> int:
    overrides = _overrides(options, overrides)
    with _make_plan(options.config, overrides, ask_hub=options.hub, profile_minutes=_profile_minutes(options)) as plan:
        return _start(plan, overrides, allow_duplicate=options.allow_duplicate, follow=options.follow)


def _start(plan: JobPlan, overrides: Sequence[str], *, allow_duplicate: bool, follow: bool) -> int:
    from rlvr.sagemaker.job import RECORD
    from rlvr.sagemaker.submission import AlreadyRunning, submit

    console.info("\n".join(plan.lines()))
    plan.check()
    try:
        job = submit(plan, tuple(overrides), allow_duplicate=allow_duplicate)
    except AlreadyRunning as running:
        console.info(f"\n{running}")
        job = running.job
    else:
        console.info(f"\n{job.name} is submitted. Its record is {plan.recipe.output_dir / RECORD}.")
        console.info(f"  {job.link}\n  python scripts/sagemaker.py follow {job.name}")
    return _watch(job) if follow else 0


def _resume(options: argparse.Namespace, overrides: list[str]) -> int:
    from rlvr.sagemaker.job import find_job
    from rlvr.sagemaker.submission import check_resumable

    job = find_job(options.job, options.region)
    config = options.config or Path(job.recipe)
    if not config.is_file():
        raise InputError(
            f"The recipe of {job.name}, {config}, is not on this machine. Name it with --config.", kind="file-not-found"
        )
    check_resumable(job)
    overrides = [*job.overrides, *_overrides(options, overrides)]
    with _make_plan(config, overrides, ask_hub=options.hub, checkpoints=job.checkpoints) as plan:
        return _start(plan, overrides, allow_duplicate=False, follow=options.follow)


def _follow(options: argparse.Namespace, _: list[str]) -> int:
    from rlvr.sagemaker.job import find_job

    return _watch(find_job(options.job, options.region))


def _watch(job: TrainingJob) -> int:
    """Print a job's events until it ends; return the exit code."""
    from rlvr.sagemaker import follow

    console.info(f"{job.name}  {job.link}")
    end = None
    try:
        for event in follow.watch(job):
            if isinstance(event, follow.StatusChange):
                console.info(console.bold(f"  {event.name}{f': {event.message}' if event.message else ''}"))
            elif isinstance(event, follow.LogLine):
                console.info(f"{console.dim(event.host)}  {event.text}")
            elif isinstance(event, follow.JobEnd):
                end = event
    except KeyboardInterrupt:
        console.info(f"\nThe job continues. `follow {job.name}` shows it again, `stop {job.name}` stops it.")
        return 130
    assert end is not None  # the last event of `watch`
    console.info("\n".join(["", *follow.summary_lines(job, end)]))
    return follow.exit_code(end)


def _stop(options: argparse.Namespace, _: list[str]) -> int:
    from rlvr.sagemaker.job import find_job, stop_job

    console.info(stop_job(find_job(options.job, options.region)))
    return 0


def _fetch(options: argparse.Namespace, _: list[str]) -> int:
    from rlvr.sagemaker.fetch import fetch_results
    from rlvr.sagemaker.job import find_job

    job = find_job(options.job, options.region)
    folder = options.to or _results_folder(job)
    names = fetch_results(job, folder, force=options.force, checkpoints=options.checkpoints)
    for name in names:
        console.info(f"  {folder / name}")
    if "adapter" in names or "model" in names:
        console.info(f"  python scripts/sagemaker.py evaluate {job.name}")
    return 0


def _evaluate(options: argparse.Namespace, overrides: list[str]) -> int:
    from rlvr.sagemaker.job import find_job

    job = find_job(options.job, options.region)
    folder = options.to or _results_folder(job)
    trained = next((folder / name for name in ("adapter", "model") if (folder / name).is_dir()), None)
    if trained is None:
        raise InputError(
            f"{folder} has neither adapter/ nor model/. Run `fetch {job.name}` first.", kind="no-results", path=folder
        )
    if not Path(job.recipe).is_file():
        raise InputError(
            f"The recipe of {job.name}, {job.recipe}, is not on this machine. Use scripts/evaluate.py.",
            kind="file-not-found",
        )
    # Loaded by its path, because a library is named `evaluate` too.
    spec = importlib.util.spec_from_file_location("evaluate_script", PROJECT / "scripts" / "evaluate.py")
    assert spec is not None and spec.loader is not None  # a .py file always has a loader
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script
    spec.loader.exec_module(script)
    output = [] if "--output" in overrides else ["--output", f"evaluations/{job.name}"]
    words = ["--config", job.recipe, "--adapter", str(trained), "--compare", "base", *output]
    return int(script.main([*words, *job.overrides, *overrides]))


def _results_folder(job: TrainingJob) -> Path:
    """The run's folder if it is on this machine, else runs/NAME."""
    folder = Path(job.folder)
    if (folder / "job.json").is_file():
        return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    return Path("runs") / job.name


def _cleanup(options: argparse.Namespace, _: list[str]) -> int:
    from rlvr.sagemaker.cleanup import delete_resources, find_resources
    from rlvr.sagemaker.job import find_job, read_record

    if options.jobs:
        jobs = [find_job(reference, options.region) for reference in options.jobs]
    else:
        records = [read_record(path) for path in sorted(Path("runs").glob("*/job*.json"))]
        jobs = [job for job in records if job is not None and options.region in (None, job.region)]
    selected = find_resources(jobs)
    others: list[JobResources] = []
    if options.account or not options.jobs:
        try:
            others = _resources_of_other_jobs(options.region, jobs)
        except InputError as error:
            if options.account or not jobs:
                raise
            console.info(f"  The account's other jobs were not listed. {error}")
    if options.account:
        selected += others
    _print_resources(selected)
    if others and not options.account:
        console.info("Submitted elsewhere, kept without --account:")
        _print_resources(others)
    if all(resources.in_use for resources in selected):
        console.info("Nothing to clean up.")
        return 0
    if not options.yes:
        if not sys.stdin.isatty():
            console.error("Nothing was deleted: add --yes to delete.")
            return 2
        if input("Delete? [y/N] ").strip().lower() not in ("y", "yes"):
            console.info("Nothing was deleted.")
            return 0
    for resources in selected:
        for line in delete_resources(resources):
            console.info(f"  {line}")
    return 0


def _resources_of_other_jobs(region: str | None, known: list[TrainingJob]) -> list[JobResources]:
    """Resources of the project's other jobs in the account, in the given region or in the known jobs' regions."""
    from rlvr.sagemaker.cleanup import find_resources, list_account_jobs

    names = [job.name for job in known]
    regions: list[str | None] = [region] if region else [*dict.fromkeys(job.region for job in known)]
    return [resources for region in regions or [None] for resources in find_resources(list_account_jobs(region, names))]


def _print_resources(listed: Sequence[JobResources]) -> None:
    for resources in listed:
        console.info("\n".join(f"  {line}" for line in resources.lines()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["plan"]:
        gc.disable()  # it would scan all imported modules again and again, and a plan takes only seconds
    sys.exit(main())
