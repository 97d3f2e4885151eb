"""The story of a run: prepare, measure, train, measure, report."""

from __future__ import annotations

import gc
import signal
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from rlvr import console
from rlvr.artifacts import checkpoints, directory
from rlvr.artifacts.host_copies import copy_to_all_hosts
from rlvr.artifacts.origin import find_origin
from rlvr.artifacts.result_record import record_run
from rlvr.artifacts.resumption import RunStatus
from rlvr.artifacts.run_lock import lock_run
from rlvr.check import introduce
from rlvr.config.recipe import Recipe
from rlvr.errors import InputError
from rlvr.estimates.machines import find_machine
from rlvr.evaluation.evaluated_model import EvaluatedModel
from rlvr.evaluation.evaluation_file import (
    describe_evaluation,
    heading,
    results_in_words,
    results_table,
    write_evaluation,
)
from rlvr.evaluation.measured import greedy_decoding, held_out_rows
from rlvr.evaluation.scores import SampledGroups
from rlvr.evaluation.trained_rows import record_training_rows
from rlvr.export.model_card import model_card, renew_cards
from rlvr.export.publish import publish_run
from rlvr.preflight.prepare import prepare_run
from rlvr.report.page import write_report
from rlvr.report.run_reader import read_run
from rlvr.scoring.source_files import digest_of_file, imported_digests
from rlvr.tracking import final_results
from rlvr.tracking.live_trackers import close_trackers
from rlvr.tracking.mlflow_tracker import make_tracker
from rlvr.training import launch
from rlvr.training.interruption import Interrupted, StopRequest, time_limit
from rlvr.training.prepared_run import PreparedRun

Outcome = Literal["FINISHED", "FAILED", "KILLED"]  # as MLflow names them


def train_and_measure(recipe: Recipe, started: float, interrupts: Sequence[int]) -> int:
    """Prepare a run and go through its stages; return the exit code.

    Args:
        started: when the process started, by `time.monotonic`.
        interrupts: what `console.remembered_interrupts` has seen.
    """
    with ExitStack() as stack:
        stop = StopRequest(time_limit(recipe.settings["max_runtime_s"]), started)
        console.silence_loading_bars()
        if not launch.launcher().startswith("zero"):  # accelerate imports it for a type
            stack.enter_context(console.unused_packages_hidden("deepspeed"))
        state = launch.join(recipe)
        stack.enter_context(lock_run(recipe.output_dir, state))  # run_grpo.py has locked it for one process
        prepared = stack.enter_context(prepare_run(recipe, state=state))
        introduce(recipe, prepared.remarks, prepared.resumption)
        stages = Stages(prepared, stop)
        gc.freeze()  # collections then leave out what the imports made
        gc.enable()
        if interrupts:  # a Ctrl-C that Python dropped inside a `__del__`
            raise KeyboardInterrupt
        return stages.run()


def profile(recipe: Recipe, started: float, minutes: float, machine: str | None) -> int:
    """Measure two generations in a temporary folder on the disk of the run; return the exit code."""
    priced_machine = find_machine(machine) if machine else None
    parent = next(folder for folder in recipe.output_dir.absolute().parents if folder.is_dir())
    with (
        console.remembered_interrupts(signal.SIGINT, signal.SIGTERM),
        TemporaryDirectory(prefix=".profile-", dir=parent, ignore_cleanup_errors=True) as folder,
    ):
        console.silence_loading_bars()
        with prepare_run(replace(recipe, settings={**recipe.settings, "output_dir": folder})) as prepared:
            introduce(recipe, prepared.remarks)
            from rlvr.preflight.profile import profile_run  # imports TRL's trainer: only after all checks

            gc.freeze()
            gc.enable()
            profile_run(prepared, started, minutes, priced_machine)
            prepared.state.destroy_process_group()
    return 0


class Stages:
    """The stages of a prepared run: measure the base model, train, measure the trained model, report.

    All processes go through them together; the main process alone writes and prints. A signal stops a stage at once,
    but training ends its step and saves a checkpoint first.
    """

    def __init__(self, prepared: PreparedRun, stop: StopRequest) -> None:
        from rlvr.training import train as train_module  # imports TRL's trainer for seconds: only after all checks

        self.train_module = train_module
        self.recipe, self.prepared, self.stop = prepared.recipe, prepared, stop
        self.is_main = prepared.state.is_main_process
        self.folder = self.recipe.output_dir
        self.model_folder = train_module.saved_folder(self.recipe)
        files = prepared.source_files()
        digests = {label: digest_of_file(file) for label, file in files.items()}
        imported = imported_digests(filter(None, files.values()))
        origin = find_origin(self.recipe) if self.is_main else None
        self.status = RunStatus(
            self.folder, prepared.identity, self.is_main, reward_files=digests, imported_files=imported, origin=origin
        )
        self.tracker = make_tracker(self.recipe) if self.is_main else None
        self.senders: final_results.Senders = {}
        self.results: dict[str, Any] = {}
        self.sampled: SampledGroups

    def run(self) -> int:
        """Go through all stages, and record in run.json how far they come; return the exit code."""
        prepared, resumption = self.prepared, self.prepared.resumption
        # Before the new status replaces what run.json says of the earlier session.
        for name in [] if resumption.fresh else self.status.changed_files():
            console.info(f"  {name} has changed since the run was stopped; steps from here on use the new code.")
        directory.prepare(
            self.recipe,
            prepared.state,
            prepared.scoring_versions,
            resolved=prepared.resolved_settings(),
            fresh=resumption.fresh,
        )
        for name in resumption.damaged if prepared.state.is_local_main_process else ():
            (self.folder / name / checkpoints.MARKER).unlink(missing_ok=True)  # it is incomplete from now on
        if self.is_main:
            record_training_rows(self.folder, prepared.task.train)
        self.status.update("trained" if resumption.saved else "running", saved=self.model_folder.name)
        self.stop.install_handlers()
        outcome: Outcome = "FAILED"
        try:
            if self.tracker is not None:
                self.tracker.start()
            self.measure_base()
            self.stop.raise_if_requested()  # its exception may be lost: console.remembered_interrupts
            if not resumption.saved:
                self.train()
            # They import for seconds: beside the measurement.
            self.senders = final_results.start_senders(self.folder) if self.is_main else {}
            self.measure_trained()
            self.stop.raise_if_requested()
            self.report()
            self.status.update("done")
            outcome = "FINISHED"
        except Interrupted as error:
            outcome = "KILLED"
            return self.status.interrupted(str(error))
        except BaseException as error:
            can_continue = not isinstance(error, self.train_module.TrainingError)
            self.status.failed(traceback.format_exc(), can_continue=can_continue)
            if isinstance(error, InputError) and self.status.facts["status"] == "trained":
                console.error(f"{error}\n  The trained model is saved: {self.model_folder}")
                return 1  # 2 would mean that nothing was trained
            raise
        finally:
            self.stop.deferred = True  # no signal may interrupt closing the trackers
            if self.tracker is not None:
                self.tracker.close(outcome, timeout_s=30 if outcome == "FINISHED" else 10)
            if self.is_main:
                close_trackers(self.recipe, outcome, self.senders)
            self.stop.restore_handlers()
        prepared.state.destroy_process_group()
        # After the status "done": a failed upload is made up for by scripts/publish.py, without training again.
        publishes = self.is_main and self.recipe.settings.get("push_to_hub")
        return publish_run(self.folder, self.model_folder, self.recipe.settings) if publishes else 0

    def measure_base(self) -> None:
        """Measure the untrained model on held-out rows.

        A run that continues generates only the answers that it lacks, and the metric judges all of them again: rows,
        golds and rewards may have changed since, and the trained model is measured with those of today.
        """
        if self.recipe.evaluation is None:
            return
        base = self._model("base")
        self.results["base"] = base.measure(greedy_decoding(self.prepared.task, self.recipe), "before")
        # Greedy answers do not show what training samples. GRPOTrainer sets its random state anew, so sampling here
        # changes nothing there.
        self.sampled = base.sample(self.prepared.plan.generations)
        base.close()
        self.train_module.free_memory()
        console.info(f"  before training: {results_in_words(*self.results['base'])}")
        console.info(f"  {self.sampled.words()}")
        if self.is_main:
            content = write_evaluation(self.folder, self._about(), self.results)
            # Before the hours of training, and again in the last table.
            for warning in filter(None, (*content.warnings, self.sampled.warning())):
                console.error(f"  warning: {warning}")

    def train(self) -> None:
        """Train, from a checkpoint if there is one, and save the adapter or the model."""
        trainer = self.train_module.build_trainer(self.prepared, self._card() if self.is_main else "")
        with self.stop:  # a signal lets the step end and a checkpoint be saved
            checkpoint = self.prepared.resumption.checkpoint
            reason = self.train_module.train(trainer, self.recipe, self.stop, checkpoint)
            if reason is not None:
                raise Interrupted(reason)
            self.train_module.save(trainer, self.model_folder, self.stop)
            self.status.update("trained", saved=self.model_folder.name)
        trainer.end_rollouts()
        del trainer
        self.train_module.free_memory()
        self.stop.raise_if_requested()

    def measure_trained(self) -> None:
        """Measure what was saved, loaded afresh, on the same rows with the same metric."""
        if self.recipe.evaluation is None:
            return
        copy_to_all_hosts(self.model_folder, self.prepared.state)
        trained = self._model("trained", self.model_folder)
        self.results["trained"] = trained.measure(greedy_decoding(self.prepared.task, self.recipe), "after")

    def report(self) -> None:
        """Write evaluation.json, result.json and report.html, and print the results; the main process alone."""
        if not self.is_main:
            return
        if self.results:
            content = write_evaluation(self.folder, self._about(), self.results)
            console.info(f"\n{heading(content)}\n\n{results_table(content)}\n")
            renew_cards(self.folder, self.model_folder)
        record_run(self.folder, self.recipe)
        console.info(f"  {self.model_folder.name:<9} {self.model_folder}")
        console.info(f"  report    {write_report(self.folder)}")

    def _model(self, name: str, adapter: Path | None = None) -> EvaluatedModel:
        run = self.prepared
        measured = (self.recipe, run.tokenizer, run.task, run.rewards, run.metrics, run.scorer)
        return EvaluatedModel(*measured, name, self.folder, adapter=adapter)

    def _about(self) -> dict[str, Any]:
        rows = held_out_rows(self.prepared.task, self.recipe)
        about = describe_evaluation(self.recipe, self.prepared.metrics, rows)
        return {**about, "sampled": asdict(self.sampled)}

    def _card(self) -> str:
        return model_card(read_run(self.folder), "adapter" if self.recipe.settings.get("use_peft") else "model")
