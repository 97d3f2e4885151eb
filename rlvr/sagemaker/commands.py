"""The commands of scripts/sagemaker.py. Each one prints what it does, and returns the exit code."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from rlvr import console
from rlvr.config.project import ROOT
from rlvr.config.recipe import load_recipe
from rlvr.errors import InputError
from rlvr.sagemaker import follow
from rlvr.sagemaker.cleanup import delete_resources, find_resources
from rlvr.sagemaker.fetch import fetch_results
from rlvr.sagemaker.job import RECORD, TrainingJob, find_job, read_record, stop_job
from rlvr.sagemaker.plan import JobPlan, make_plan
from rlvr.sagemaker.submission import AlreadyRunning, check_resumable, submit


def run(options: Namespace, overrides: Sequence[str]) -> int:
    """Run the command `options.command`.

    Raises:
        InputError: an option, the recipe or the account is wrong.
    """
    if options.command in ("plan", "submit", "resume"):
        return {"plan": _plan, "submit": _submit, "resume": _resume}[options.command](options, overrides)
    if options.command == "cleanup":
        return _cleanup(options)
    job = find_job(options.job, options.region)
    if options.command == "follow":
        return _watch(job)
    if options.command == "stop":
        console.info(stop_job(job))
        return 0
    folder = options.to or _results_folder(job)
    return _fetch(options, job, folder) if options.command == "fetch" else _evaluate(job, folder, overrides)


def _plan(options: Namespace, overrides: Sequence[str]) -> int:
    with make_plan(options.config, overrides, profile_minutes=options.profile) as plan:
        if options.json:
            console.write(json.dumps(plan.as_dict(), indent=2), sys.stdout)
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


def _submit(options: Namespace, overrides: Sequence[str]) -> int:
    with make_plan(options.config, overrides, profile_minutes=options.profile) as plan:
        return _start(plan, overrides, allow_duplicate=options.allow_duplicate, follow=options.follow)


def _resume(options: Namespace, overrides: Sequence[str]) -> int:
    job = find_job(options.job, options.region)
    config = options.config or Path(job.recipe)
    if not config.is_file():
        raise _no_recipe(job, "Name it with --config.")
    check_resumable(job)
    overrides = [*job.overrides, *overrides]
    with make_plan(config, overrides, checkpoints=job.checkpoints) as plan:
        return _start(plan, overrides, allow_duplicate=False, follow=options.follow)


def _no_recipe(job: TrainingJob, fix: str) -> InputError:
    return InputError(f"The recipe of {job.name}, {job.recipe}, is not on this machine. {fix}", kind="file-not-found")


def _start(plan: JobPlan, overrides: Sequence[str], *, allow_duplicate: bool, follow: bool) -> int:
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


def _watch(job: TrainingJob) -> int:
    """Print a job's events until it ends; return the exit code."""
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


def _fetch(options: Namespace, job: TrainingJob, folder: Path) -> int:
    names = fetch_results(job, folder, force=options.force, checkpoints=options.checkpoints)
    for name in names:
        console.info(f"  {folder / name}")
    if "adapter" in names or "model" in names:
        console.info(f"  python scripts/sagemaker.py evaluate {job.name}")
    return 0


def _evaluate(job: TrainingJob, folder: Path, overrides: Sequence[str]) -> int:
    trained = next((folder / name for name in ("adapter", "model") if (folder / name).is_dir()), None)
    if trained is None:
        message = f"{folder} has neither adapter/ nor model/. Run `fetch {job.name}` first."
        raise InputError(message, kind="no-results", path=folder)
    if not Path(job.recipe).is_file():
        raise _no_recipe(job, "Use scripts/evaluate.py.")
    output = [] if "--output" in overrides else ["--output", f"evaluations/{job.name}"]
    words = ["--config", job.recipe, "--adapter", str(trained), "--compare", "base", *output, *job.overrides]
    for spec in load_recipe(Path(job.recipe), job.overrides).rewards:
        if spec.where == "ray":  # the cluster of the job's hosts has ended
            words += [f"--rewards.{spec.name}.where", "local"]
    command = [sys.executable, str(ROOT / "scripts" / "evaluate.py"), *words, *overrides]
    sys.stdout.flush()
    os.execv(sys.executable, command)  # signals and the exit code are those of the evaluation


def _results_folder(job: TrainingJob) -> Path:
    """The run's folder if it is on this machine, else runs/NAME."""
    folder = Path(job.folder)
    if (folder / RECORD).is_file():
        return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    return Path("runs") / job.name


def _cleanup(options: Namespace) -> int:
    if options.jobs:
        jobs = [find_job(reference, options.region) for reference in options.jobs]
    else:
        records = [read_record(path) for path in sorted(Path("runs").glob("*/job*.json"))]
        jobs = [job for job in records if job is not None and options.region in (None, job.region)]
    selected = find_resources(jobs)
    for resources in selected:
        console.info("\n".join(f"  {line}" for line in resources.lines()))
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
