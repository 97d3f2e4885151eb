#!/usr/bin/env python
"""A recipe as an Amazon SageMaker training job: planned, submitted, followed, fetched, evaluated, and cleared up after.

    python scripts/sagemaker.py plan --config RECIPE --instance_type ml.g6e.12xlarge --role ARN --region us-east-1
    python scripts/sagemaker.py submit --config RECIPE …     # the same words; refuses what plan finds wrong
    python scripts/sagemaker.py follow JOB                   # from anywhere; Ctrl-C stops following, not the job
    python scripts/sagemaker.py stop JOB                     # it saves a checkpoint first
    python scripts/sagemaker.py resume JOB                   # a new job, on the same checkpoints
    python scripts/sagemaker.py fetch JOB                    # its results, into the run's folder
    python scripts/sagemaker.py evaluate JOB                 # base against trained, here
    python scripts/sagemaker.py cleanup [JOB …]              # warm pools and files in S3; lists them and asks
    python scripts/sagemaker.py cleanup --account            # the same, of all jobs of the project in the account

`plan` is offline: nothing is uploaded, and neither credentials nor a network are needed. JOB is a job's name, or the
folder of its run (runs/NAME), where job.json is. Any key of the recipe can be overridden, its sagemaker section as
well: --sagemaker.spot true, --sagemaker.max_runtime_s 7200, --learning_rate 1e-5. docs/sagemaker.md says what each is
for.

Exit codes: 0 done; 2 something is wrong, and nothing was done; 1 the job failed; 75 it was stopped and can be resumed;
130 following was ended by Ctrl-C.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # rlvr/, wherever this is started from

from rlvr import console
from rlvr.errors import InputError

if TYPE_CHECKING:
    from rlvr.sagemaker.cleanup import Leftover
    from rlvr.sagemaker.job import Job
    from rlvr.sagemaker.plan import JobPlan

PROJECT = Path(__file__).resolve().parents[1]
SHORT = ("role", "bucket", "region", "instance_type")


def main(words: Sequence[str] | None = None) -> int:
    # This folder has a file with the name of the SDK, which other libraries may look for.
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]
    parser = _parser()
    if not (sys.argv[1:] if words is None else words):
        parser.print_help(sys.stderr)
        return 2
    options, overrides = parser.parse_known_args(words)
    console.silence_libraries()
    if options.command in ("follow", "stop", "fetch", "cleanup") and overrides:
        parser.error(f"{options.command} doesn't know {' '.join(overrides)}")
    try:
        return int(globals()[f"_{options.command}"](options, overrides))
    except InputError as error:
        console.error(str(error))
        return 2
    except KeyboardInterrupt:
        console.error("\nEnded by Ctrl-C.")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sagemaker.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, about: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=about, description=about, allow_abbrev=False)

    def describes(one: argparse.ArgumentParser, *, config: bool = True) -> None:
        about = "the recipe, a YAML file" if config else "the recipe, where it is not to be the one of JOB"
        one.add_argument("--config", required=config, type=Path, metavar="RECIPE", help=about)
        one.epilog = "Any key of the recipe may follow: --learning_rate 1e-5, --sagemaker.max_runtime_s 7200."
        for key in SHORT:
            one.add_argument(f"--{key}", help=f"short for --sagemaker.{key}")
        one.add_argument("--hub", action="store_true", help="ask the Hugging Face hub for what the checks need")

    def names_a_job(one: argparse.ArgumentParser) -> None:
        one.add_argument("job", metavar="JOB", help="its name, or the folder of its run")

    plan = command("plan", "say what a job would be, need and cost, and what is wrong with it; offline")
    describes(plan)
    plan.add_argument("--json", action="store_true", help="print the request and the files as JSON instead")
    plan.add_argument("--files", action="store_true", help="list every file that travels")
    submit = command("submit", "start the job that plan shows")
    describes(submit)
    submit.add_argument("--another", action="store_true", help="also where a job of the same recipe is in progress")
    submit.add_argument("--follow", action="store_true", help="and follow it")
    resume = command("resume", "start a new job on the checkpoints of one that was stopped or failed")
    names_a_job(resume)
    describes(resume, config=False)
    resume.add_argument("--follow", action="store_true", help="and follow it")
    for name, about in (
        ("follow", "show status, log and progress until the job is over"),
        ("stop", "stop the job; it saves a checkpoint first"),
        ("fetch", "download and unpack what the job has made"),
        ("evaluate", "evaluate base and trained model on the same held-out rows, with scripts/evaluate.py"),
    ):
        one = command(name, about)
        names_a_job(one)
        one.add_argument("--region", help="where to look for the job")
        if name in ("fetch", "evaluate"):
            one.add_argument(
                "--to", type=Path, metavar="FOLDER", help="where the results are; default: the run's folder"
            )
        if name == "fetch":
            one.add_argument("--force", action="store_true", help="replace files that are there")
            one.add_argument("--checkpoints", action="store_true", help="get the run with its checkpoints instead")
    cleanup = command("cleanup", "end warm pools and delete what jobs left in S3")
    cleanup.add_argument("jobs", nargs="*", metavar="JOB", help="default: all that were submitted from here (runs/)")
    cleanup.add_argument("--region", help="where to look for the jobs")
    cleanup.add_argument(
        "--account", action="store_true", help="also the project's other jobs of the account, whoever submitted them"
    )
    cleanup.add_argument("--yes", action="store_true", help="do it without asking")
    return parser


def _words(options: argparse.Namespace, overrides: Sequence[str]) -> list[str]:
    """The recipe's overrides, with those that have a short form."""
    short = []
    for key in SHORT:
        value = getattr(options, key)
        if value is not None:
            quoted = value.replace("'", "''")  # as YAML wants it: it is text, whatever it looks like
            short += [f"--sagemaker.{key}", f"'{quoted}'"]
    return [*overrides, *short]


def _plan(options: argparse.Namespace, overrides: list[str]) -> int:
    from rlvr.sagemaker.plan import make_plan

    with make_plan(options.config, _words(options, overrides), ask_hub=options.hub) as plan:
        if options.json:
            print(json.dumps(_as_json(plan), indent=2))
        else:
            console.info("\n".join(plan.lines(all_files=options.files)))
        if plan.faults:
            console.error("\n".join(["", *plan.faults]))
            return 2
    if not options.json:
        console.info("  Nothing wrong was found, and nothing was uploaded. `submit` with the same words starts it.")
    return 0


def _as_json(plan: JobPlan) -> dict[str, object]:
    return {
        "request": plan.request,
        "files": [{"name": f"{file.channel}/{file.name}", "bytes": file.size, "to": uri} for file, uri in plan.uploads],
        "faults": plan.faults,
    }


def _submit(options: argparse.Namespace, overrides: list[str]) -> int:
    from rlvr.sagemaker.plan import make_plan

    words = _words(options, overrides)
    with make_plan(options.config, words, ask_hub=options.hub) as plan:
        return _start(plan, words, another=options.another, follow=options.follow)


def _start(plan: JobPlan, words: Sequence[str], *, another: bool, follow: bool) -> int:
    from rlvr.sagemaker.job import RECORD, AlreadyRunning, submit

    console.info("\n".join(plan.lines()))
    plan.check()
    try:
        job = submit(plan, tuple(words), another=another)
    except AlreadyRunning as running:
        console.info(f"\n{running}")
        job = running.job
    else:
        console.info(f"\n{job.name} is submitted. Its record is {plan.recipe.output_dir / RECORD}.")
        console.info(f"  {job.link}\n  python scripts/sagemaker.py follow {job.name}")
    return _watched(job) if follow else 0


def _resume(options: argparse.Namespace, overrides: list[str]) -> int:
    from rlvr.sagemaker.job import check_resumable, find
    from rlvr.sagemaker.plan import make_plan

    job = find(options.job, options.region)
    config = options.config or Path(job.recipe)
    if not config.is_file():
        raise InputError(f"The recipe of {job.name}, {config}, is not on this machine: name it with --config.")
    check_resumable(job)
    words = [*job.overrides, *_words(options, overrides)]
    with make_plan(config, words, ask_hub=options.hub, checkpoints=job.checkpoints) as plan:
        return _start(plan, words, another=False, follow=options.follow)


def _follow(options: argparse.Namespace, _: list[str]) -> int:
    from rlvr.sagemaker.job import find

    return _watched(find(options.job, options.region))


def _watched(job: Job) -> int:
    """Prints what happens to a job; its exit code."""
    from rlvr.sagemaker import follow

    console.info(f"{job.name}  {job.link}")
    end = None
    try:
        for event in follow.watch(job):
            if isinstance(event, follow.Status):
                console.info(console.bold(f"  {event.name}{f': {event.message}' if event.message else ''}"))
            elif isinstance(event, follow.Line):
                console.info(f"{console.dim(event.host)}  {event.text}")
            elif isinstance(event, follow.End):
                end = event
    except KeyboardInterrupt:
        console.info(f"\nNo longer following; the job goes on. `follow {job.name}` shows it again, `stop` ends it.")
        return 130
    assert end is not None  # watch ends with it
    console.info("\n".join(["", *follow.end_lines(job, end)]))
    return {"Completed": 0, "Stopped": 75}.get(end.status, 1)


def _stop(options: argparse.Namespace, _: list[str]) -> int:
    from rlvr.sagemaker.job import find, stop

    console.info(stop(find(options.job, options.region)))
    return 0


def _fetch(options: argparse.Namespace, _: list[str]) -> int:
    from rlvr.sagemaker.fetch import fetch
    from rlvr.sagemaker.job import find

    job = find(options.job, options.region)
    folder = options.to or _folder_of(job)
    names = fetch(job, folder, force=options.force, checkpoints=options.checkpoints)
    for name in names:
        console.info(f"  {folder / name}")
    if "adapter" in names or "model" in names:
        console.info(f"  python scripts/sagemaker.py evaluate {job.name}")
    return 0


def _evaluate(options: argparse.Namespace, overrides: list[str]) -> int:
    from rlvr.sagemaker.job import find

    job = find(options.job, options.region)
    folder = options.to or _folder_of(job)
    trained = next((folder / name for name in ("adapter", "model") if (folder / name).is_dir()), None)
    if trained is None:
        raise InputError(f"{folder} holds neither adapter/ nor model/: run `fetch {job.name}` first.")
    if not Path(job.recipe).is_file():
        raise InputError(f"The recipe of {job.name}, {job.recipe}, is not on this machine: use scripts/evaluate.py.")
    # Found by its file: `evaluate` is also the name of a package.
    spec = importlib.util.spec_from_file_location("evaluate_script", PROJECT / "scripts" / "evaluate.py")
    assert spec is not None and spec.loader is not None  # a .py file always has a loader
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script
    spec.loader.exec_module(script)
    output = [] if "--output" in overrides else ["--output", f"evaluations/{job.name}"]
    words = ["--config", job.recipe, "--adapter", str(trained), "--compare", "base", *output]
    return int(script.main([*words, *job.overrides, *overrides]))


def _folder_of(job: Job) -> Path:
    """The run's folder, where that is on this machine; else one of the job's name."""
    folder = Path(job.folder)
    if (folder / "job.json").is_file():
        return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    return Path("runs") / job.name


def _left_by_others(region: str | None, known: list[Job]) -> list[Leftover]:
    """What the project's other jobs left in the account: in the region named, or else in all of the known jobs."""
    from rlvr.sagemaker.cleanup import jobs_of_account, leftovers

    names = [job.name for job in known]
    regions: list[str | None] = [region] if region else [*dict.fromkeys(job.region for job in known)]
    return [left for one in regions or [None] for left in leftovers(jobs_of_account(one, names))]


def _cleanup(options: argparse.Namespace, _: list[str]) -> int:
    from rlvr.sagemaker.cleanup import clean, leftovers
    from rlvr.sagemaker.job import find, read_record

    if options.jobs:
        jobs = [find(word, options.region) for word in options.jobs]
    else:
        records = [read_record(path) for path in sorted(Path("runs").glob("*/job*.json"))]
        jobs = [job for job in records if job is not None and options.region in (None, job.region)]
    found = leftovers(jobs)
    others: list[Leftover] = []
    if options.account or not options.jobs:
        try:
            others = _left_by_others(options.region, jobs)
        except InputError as error:
            if options.account or not jobs:
                raise
            console.info(f"  The account's other jobs were not looked at. {error}")
    if options.account:
        found += others
    for one in found:
        console.info("\n".join(f"  {line}" for line in one.lines()))
    if others and not options.account:
        console.info("Not submitted from here, and left alone without --account:")
        for one in others:
            console.info("\n".join(f"  {line}" for line in one.lines()))
    if all(one.running for one in found):
        console.info("There is nothing to clear up.")
        return 0
    if not options.yes:
        if not sys.stdin.isatty():
            console.error("Nothing was done: add --yes to do it.")
            return 2
        if input("Do this? [y/N] ").strip().lower() not in ("y", "yes"):
            console.info("Nothing was done.")
            return 0
    for one in found:
        for line in clean(one):
            console.info(f"  {line}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["plan"]:
        gc.disable()  # it would walk through what is imported, again and again, and all is over in seconds
    sys.exit(main())
