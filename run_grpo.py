#!/usr/bin/env python
"""Train a model with GRPO from a recipe, and measure on held-out rows whether it improved.

    python run_grpo.py --config recipes/demo-arithmetic.yaml
    accelerate launch --config_file accelerate_configs/zero3.yaml run_grpo.py --config RECIPE --learning_rate 1e-5

Override any key of the recipe with --key value. Keys of a section are dotted: --task.shots 4,
--rewards.answer_format.weight 0.2, --evaluation.rows 100.

The same command continues a run that was stopped or killed (docs/resume.md).

Exit codes: 0 done; 2 the recipe or the data is wrong, nothing was trained; 1 failed while running; 75 stopped early,
and the same command continues; 130 Ctrl-C with nothing to save, or pressed twice.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rlvr import console
from rlvr.config.recipe import Recipe, RecipeError, extended_text, load_recipe
from rlvr.errors import InputError, Problem, is_disk_full
from rlvr.formatting import count
from rlvr.preflight import PROFILE_MINUTES

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from rlvr.artifacts.resumption import Resumption
    from rlvr.config.batch_plan import BatchPlan
    from rlvr.evaluation.scores import SampledGroups
    from rlvr.preflight.prepare import PreparedRun
    from rlvr.training.interruption import StopRequest

NOT_INSTALLED = (
    f"The packages of this project are not installed for {sys.executable}. Run `make install` and "
    "`. .venv/bin/activate`, or `pip install -e . -c constraints.txt`."
)


def main(words: Sequence[str] | None = None) -> int:
    started = time.monotonic()  # max_runtime_s counts the seconds of the imports below
    options, overrides = parse_arguments(words)
    if any(importlib.util.find_spec(name) is None for name in ("ruamel", "torch", "trl")):
        console.error(NOT_INSTALLED)
        return 2
    console.silence_libraries()
    gc.disable()  # until training: collecting after imports takes a tenth of a check's time
    try:
        if options.check:
            return check(options, overrides)
        recipe = load_recipe(options.config, overrides)
        return profile(recipe, options, started) if options.profile else run(recipe, started)
    except InputError as error:
        if options.json:
            print_as_json(error.problems)
        elif str(error):
            console.error(str(error))
        if options.check and not options.json:
            errors = sum(problem.level == "error" for problem in error.problems)
            console.error(f"{count(errors, 'error')}: see above.")
        return 2
    except KeyboardInterrupt:
        console.error("\nStopped by Ctrl-C.")
        return 130
    except Exception as error:
        if is_disk_full(error):
            file = f" ({name})" if (name := getattr(error, "filename", None)) else ""
            console.error(f"The disk is full{file}. Make room; the same command continues from what was saved.")
            return 1
        if type(error).__name__ not in ("RewardError", "TrainingError", "RolloutError"):  # their modules import torch
            raise
        # The cause is in a reward or in the recipe, so our stack frames don't help. failure.txt has them.
        console.error(str(error))
        return 1
    finally:
        gc.enable()


def parse_arguments(words: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and the remaining words: overrides of the recipe."""
    parser = argparse.ArgumentParser(prog="run_grpo.py", description=__doc__, formatter_class=console.HelpFormatter)
    parser.add_argument("--config", required=True, type=Path, metavar="RECIPE", help="the recipe, a YAML file")
    parser.add_argument("--check", action="store_true", help="only check: load no weights, write nothing")
    parser.add_argument("--json", action="store_true", help="with --check: print one JSON object (docs/check.md)")
    parser.add_argument("--thorough", action="store_true", help="with --check: attack the rewards (docs/red-team.md)")
    parser.add_argument("--world_size", type=int, metavar="N", help="with --check: check for N processes")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="measure two generations with their updates, project the whole run, keep nothing (docs/estimates.md)",
    )
    parser.add_argument(
        "--profile_minutes",
        type=float,
        metavar="N",
        help=f"with --profile: end after the step that passes N minutes; default: {PROFILE_MINUTES:g}",
    )
    parser.add_argument(
        "--machine",
        metavar="NAME",
        help="with --check: estimate for this GPU or instance type, such as ml.g6e.12xlarge; with --profile: its price",
    )
    parser.add_argument(
        "--launcher",
        choices=["python", "ddp", "zero2", "zero2_offload", "zero3", "fsdp2"],
        help="with --check: check for this launcher (accelerate_configs/); default: the one in use",
    )
    options, overrides = parser.parse_known_args(words)
    for_other_machine = options.world_size is not None or options.launcher
    if (for_other_machine or options.json or options.thorough) and not options.check:
        parser.error("--json, --thorough, --world_size and --launcher need --check")
    if options.check and options.profile:
        parser.error("--check and --profile exclude each other: a profile checks first")
    if options.machine and not (options.check or options.profile):
        parser.error("--machine needs --check or --profile")
    if options.profile_minutes is not None and not (options.profile and options.profile_minutes > 0):
        parser.error("--profile_minutes needs --profile and a number above 0")
    if options.world_size is not None and options.world_size < 1:
        parser.error("--world_size must be at least 1")
    return options, overrides


def check(options: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Report all problems in one pass; those of the recipe's text at once, since loading the rest takes seconds."""
    text_problems: Sequence[Problem] = ()
    try:
        recipe = load_recipe(options.config, overrides)
    except RecipeError as error:
        if error.rest is None:
            raise
        recipe, text_problems = error.rest, error.problems
        if not options.json:
            console.error(str(error))
    if not options.json:
        announce(recipe)
    from rlvr.preflight.components import TargetMachine
    from rlvr.preflight.prepare import prepare_run

    console.silence_loading_bars()
    target = TargetMachine(options.world_size, options.machine, options.launcher)
    with prepare_run(
        recipe, target, only_check=True, thorough=options.thorough, known_problems=text_problems
    ) as prepared:
        if options.json:
            print_as_json(prepared.remarks, prepared.plan)
            return 0
        introduce(recipe, prepared.remarks)
        if (text := extended_text(recipe)) is not None:
            console.info(f"\n{text}")
        warnings = sum(remark.level == "warning" for remark in prepared.remarks)
        console.info(f"No errors, {count(warnings, 'warning')}: see above." if warnings else "No problems found.")
        return 0


def profile(recipe: Recipe, options: argparse.Namespace, started: float) -> int:
    """Measure two generations in a temporary folder on the disk of the run; return the exit code."""
    machine = None
    if options.machine:
        from rlvr.estimates.machines import find_machine

        machine = find_machine(options.machine)
    announce(recipe)
    parent = next(folder for folder in recipe.output_dir.absolute().parents if folder.is_dir())
    with (
        console.remembered_interrupts(signal.SIGINT, signal.SIGTERM),
        TemporaryDirectory(prefix=".profile-", dir=parent, ignore_cleanup_errors=True) as folder,
    ):
        from rlvr.preflight.prepare import prepare_run

        console.silence_loading_bars()
        with prepare_run(replace(recipe, settings={**recipe.settings, "output_dir": folder})) as prepared:
            introduce(recipe, prepared.remarks)
            from rlvr.preflight.profile import profile_run  # imports TRL's trainer: only after all checks

            gc.enable()
            profile_run(prepared, started, options.profile_minutes or PROFILE_MINUTES, machine)
            prepared.state.destroy_process_group()
    return 0


def run(recipe: Recipe, started: float) -> int:
    """Prepare and execute a run; return its exit code."""
    announce(recipe)
    from rlvr.artifacts.run_lock import lock_run

    with ExitStack() as stack:
        interrupts = stack.enter_context(console.remembered_interrupts(signal.SIGINT))
        if "RANK" not in os.environ:  # before the slow imports; the processes of a launcher lock together, below
            stack.enter_context(lock_run(recipe.output_dir))
        from rlvr.preflight.prepare import prepare_run
        from rlvr.training import launch
        from rlvr.training.interruption import StopRequest, time_limit

        stop = StopRequest(time_limit(recipe.settings["max_runtime_s"]), started)
        console.silence_loading_bars()
        stack.enter_context(lock_run(recipe.output_dir, launch.join(recipe)))
        prepared = stack.enter_context(prepare_run(recipe))
        introduce(recipe, prepared.remarks, prepared.resumption)
        stages = Run(prepared.recipe, prepared, stop)
        gc.enable()
        if interrupts:
            raise KeyboardInterrupt
        return stages.execute()


class Run:
    """A prepared run: measure the base model, train, measure the trained model, report."""

    def __init__(self, recipe: Recipe, prepared: PreparedRun, stop: StopRequest) -> None:
        from rlvr.artifacts.origin import find_origin
        from rlvr.artifacts.resumption import RunStatus
        from rlvr.environments.loading import load_environments
        from rlvr.scoring.call import digest_of_file
        from rlvr.scoring.reward import file_of, metrics_of
        from rlvr.scoring.source_files import imported_digests
        from rlvr.tracking.mlflow_tracker import make_tracker
        from rlvr.training import train  # imports TRL's trainer, which takes seconds: only after all checks

        self.recipe = recipe
        self.prepared = prepared
        self.stop = stop
        self.is_main = prepared.state.is_main_process
        self.folder = recipe.output_dir
        self.model_folder = train.saved_folder(recipe)
        rewards = [*prepared.rewards, *metrics_of(prepared.metric)]
        files = {reward.label: file_of(reward.function) for reward in rewards}
        for environment in load_environments(recipe.environments):
            files[f"environment {environment.label}"] = sys.modules[environment.cls.__module__].__file__
        digests = {name: digest_of_file(file) for name, file in files.items()}
        imported = imported_digests(filter(None, files.values()))
        origin = find_origin(recipe) if self.is_main else None
        self.status = RunStatus(self.folder, prepared.identity, self.is_main, digests, imported, origin)
        self.tracker: TrainerCallback | None = make_tracker(recipe) if self.is_main else None
        self.results: dict[str, Any] = {}
        self.sampled: SampledGroups

    def execute(self) -> int:
        """Run all stages, and record in run.json how far they come; return the exit code."""
        from rlvr.artifacts import directory
        from rlvr.evaluation.trained_rows import record_training_rows
        from rlvr.tracking.live_trackers import close_trackers
        from rlvr.training import trl_config
        from rlvr.training.interruption import Interrupted
        from rlvr.training.train import TrainingError

        prepared, resumption = self.prepared, self.prepared.resumption
        for name in [] if resumption.fresh else self.status.changed_files():
            console.info(f"  {name} has changed since the run was stopped; steps from here on use the new code.")
        resolved = trl_config.resolved_settings(self.recipe, prepared.rewards, prepared.task.stop_strings)
        directory.prepare(self.recipe, prepared.state, prepared.environment, resolved=resolved, fresh=resumption.fresh)
        if self.is_main:
            record_training_rows(self.folder, prepared.task.train)
        self.status.update("trained" if resumption.trained else "running", saved=self.model_folder.name)
        self.stop.install_handlers()
        outcome = "FAILED"
        try:
            if self.tracker is not None:
                self.tracker.start()
            self.measure_base()
            self.stop.raise_if_requested()  # its exception may be lost: console.remembered_interrupts
            if not resumption.trained:
                self.train()
            self.measure_trained()
            self.stop.raise_if_requested()
            self.report()
            self.status.update("done")
            outcome = "FINISHED"
        except Interrupted as error:
            outcome = "KILLED"
            return self.status.interrupted(str(error))
        except BaseException as error:
            self.status.failed(traceback.format_exc(), can_continue=not isinstance(error, TrainingError))
            if isinstance(error, InputError) and self.status.facts["status"] == "trained":
                console.error(f"{error}\n  The trained model is saved: {self.model_folder}")
                return 1  # 2 would mean that nothing was trained
            raise
        finally:
            self.stop.deferred = True
            if self.tracker is not None:
                self.tracker.close(outcome, timeout_s=30 if outcome == "FINISHED" else 10)
            if self.is_main:
                close_trackers(self.recipe, outcome)
            self.stop.restore_handlers()
        self.prepared.state.destroy_process_group()
        return self.publish() if self.is_main and self.recipe.settings.get("push_to_hub") else 0

    def measure_base(self) -> None:
        """Measure the untrained model on held-out rows.

        A run that continues generates only the answers that it lacks, and the verifier judges all of them again: rows,
        golds and rewards may have changed since, and the trained model is measured with those of today.
        """
        from rlvr import evaluation
        from rlvr.training import trl_config

        if self.recipe.evaluation is None:
            return
        prepared = self.prepared
        base = evaluation.EvaluatedModel(self.recipe, prepared.tokenizer, "base", self.folder)
        self.results["base"] = self._measure(base, "before")
        # Greedy answers do not say what training will sample. GRPOTrainer sets its random state anew.
        self.sampled = base.sample(
            prepared.task, prepared.rewards, prepared.metric, prepared.scorer, prepared.plan.generations
        )
        base.close()
        trl_config.free_memory()
        console.info(f"  before training: {evaluation.results_in_words(*self.results['base'])}")
        console.info(f"  {self.sampled.words()}")
        if self.is_main:
            content = evaluation.write_evaluation(self.folder, self._about(), self.results)
            for warning in filter(
                None, (*content.warnings, self.sampled.warning())
            ):  # before the hours of training, and again in the last table
                console.error(f"  warning: {warning}")

    def _about(self) -> dict[str, Any]:
        from rlvr import evaluation

        rows = evaluation.held_out_rows(self.prepared.task, self.recipe)
        about = evaluation.describe_evaluation(self.recipe, self.prepared.metric, rows)
        return {**about, "sampled": asdict(self.sampled)}

    def train(self) -> None:
        """Train, from a checkpoint if there is one, and save the adapter or the model."""
        from rlvr.training import train, trl_config
        from rlvr.training.interruption import Interrupted

        prepared = self.prepared
        trainer = train.build_trainer(
            self.recipe,
            prepared.task,
            prepared.rewards,
            prepared.metric,
            prepared.tokenizer,
            prepared.scorer,
            prepared.identity,
            steps=prepared.plan.steps,
            card=self.card() if self.is_main else "",
        )
        with self.stop:  # a signal lets the step end and a checkpoint be saved
            reason = train.train(trainer, self.recipe, self.stop, prepared.resumption.checkpoint, self.tracker)
            if reason is not None:
                raise Interrupted(reason)
            train.save(trainer, self.model_folder, self.stop)
            self.status.update("trained", saved=self.model_folder.name)
        trainer.end_rollouts()
        del trainer
        trl_config.free_memory()
        self.stop.raise_if_requested()

    def measure_trained(self) -> None:
        """Measure what was saved, loaded afresh, on the same rows with the same verifier."""
        from rlvr import evaluation
        from rlvr.artifacts.host_copies import copy_to_all_hosts

        if self.recipe.evaluation is None:
            return
        copy_to_all_hosts(self.model_folder, self.prepared.state)
        trained = evaluation.EvaluatedModel(
            self.recipe, self.prepared.tokenizer, "trained", self.folder, adapter=self.model_folder
        )
        self.results["trained"] = self._measure(trained, "after")

    def _measure(self, model: Any, when: str) -> Any:
        from rlvr import evaluation

        prepared = self.prepared
        decoding = evaluation.greedy_decoding(prepared.task, self.recipe)
        return model.measure(
            prepared.task, self.recipe, prepared.rewards, prepared.metric, prepared.scorer, decoding, when
        )

    def report(self) -> None:
        """Write evaluation.json, result.json and report.html, and print the results; the main process alone."""
        from rlvr import evaluation, report
        from rlvr.artifacts.result_record import record_run
        from rlvr.publishing.model_card import renew_cards

        if not self.is_main:
            return
        if self.results:
            content = evaluation.write_evaluation(self.folder, self._about(), self.results)
            console.info(f"\n{evaluation.heading(content)}\n\n{evaluation.results_table(content)}\n")
            renew_cards(self.folder, self.model_folder)
        record_run(self.folder, self.recipe)
        console.info(f"  {self.model_folder.name:<9} {self.model_folder}")
        console.info(f"  report    {report.write_report(self.folder)}")

    def card(self) -> str:
        """Write the model card from the files of the run."""
        from rlvr.publishing.model_card import model_card
        from rlvr.report.run_reader import read_run

        return model_card(read_run(self.folder), "adapter" if self.recipe.settings.get("use_peft") else "model")

    def publish(self) -> int:
        """Push the model to the hub; return the exit code. The run is done, whatever happens here."""
        from rlvr.publishing.artifact import find_artifact
        from rlvr.publishing.publish import prepare, publish

        repo, private = self.recipe.settings["hub_model_id"], self.recipe.settings.get("hub_private_repo")
        words = ["python", "scripts/publish.py", str(self.folder), "--repo", repo, *(["--private"] if private else [])]
        later = f"The run is done and saved: {self.model_folder}. To publish it later: {shlex.join(words)}"
        try:
            address = publish(prepare(find_artifact(self.folder), repo), repo, private=private)
        except InputError as error:
            console.error(f"{error}\n  {later}")
            return 1
        except KeyboardInterrupt:
            console.error(f"\n  Publishing was stopped. {later}")
            return 130
        console.info(f"  published {address}")
        return 0


def announce(recipe: Recipe) -> None:
    """Print the first line of a run at once: the imports take half a minute on a busy machine."""
    console.error(f"{recipe.path}: loading torch, transformers and TRL …")


def introduce(recipe: Recipe, remarks: Iterable[Problem], resumption: Resumption | None = None) -> None:
    """Print what will run. A run that continues printed the notes when it began: one line, and its warnings."""
    rewards = " + ".join(f"{spec.weight:g} x {spec.name}" for spec in recipe.rewards)
    line = f"{recipe.path}: {recipe.settings['model_name_or_path']} on {recipe.task.name}, reward = {rewards}"
    if resumption is not None and not resumption.fresh:
        line = "; ".join([line, *resumption.notes])
        remarks = [remark for remark in remarks if remark.level == "warning"]
    console.info(line)
    for remark in remarks:
        console.info(f"  {remark}")


def print_as_json(problems: Sequence[Problem], plan: BatchPlan | None = None) -> None:
    """Print the result of a check as one JSON object."""
    levels: dict[str, list[Any]] = {"error": [], "warning": [], "note": []}
    for problem in problems:
        levels[problem.level].append(problem.message if problem.level == "note" else problem.as_dict())
    result = {
        "problems": levels["error"],
        "warnings": levels["warning"],
        "notes": levels["note"],
        "plan": asdict(plan) if plan is not None else None,
    }
    if console.is_main():
        console.write(json.dumps(result, indent=2, ensure_ascii=False), sys.stdout)


if __name__ == "__main__":
    if "--check" in sys.argv:
        # Nothing is computed, and bitsandbytes, which TRL imports, would load torch's compiler for two seconds.
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    code = main()
    gc.freeze()  # otherwise Python collects all imported modules once more before it ends
    # A launcher sends SIGTERM to the other processes as soon as one has ended. They must keep their own exit codes.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(code)
