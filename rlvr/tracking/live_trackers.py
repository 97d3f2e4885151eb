"""Keep the trackers of transformers, which log in the training process, from costing a run.

    alert = watch_trackers(trainer, recipe)      # before training
    ...
    close_trackers(recipe, "FINISHED")           # after the report

transformers and TRL log metrics and completions. This module adds what they lack: a W&B run that a resumed run
continues, health findings as alerts there, and evaluation and report at the end. A tracker that raises, or that does
not answer in time, is dropped with a message, and training goes on.
"""

from __future__ import annotations

import contextvars
import copy
import importlib
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from rlvr import console
from rlvr.config.recipe import Recipe
from rlvr.formatting import flatten, hide_url_users
from rlvr.health import Finding
from rlvr.tracking import final_results
from rlvr.tracking.messages import describe_error, print_message

WAIT_S = 90.0  # an init that waits for W&B's own timeout of 20 s takes 45 s
FINISH_WAIT_S = 330.0  # more than wandb_run.py's WANDB_FINISH_TIMEOUT
EXIT_CODES = {"FINISHED": 0, "FAILED": 1, "KILLED": 75}


class LiveTracker:
    """A callback of transformers for one tracker, whose events can't end the training.

    Args:
        name: of the tracker in `report_to`.
        callback: transformers' own.
        report_to: of TRL, which logs completions to these trackers.
    """

    def __init__(self, name: str, callback: TrainerCallback, recipe: Recipe, report_to: list[str]) -> None:
        self.name = name
        self.callback = callback
        self.recipe = recipe
        self.report_to = report_to

    def __getattr__(self, event: str) -> Callable[..., None]:
        if not event.startswith("on_"):
            raise AttributeError(event)

        def handle(args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            def call() -> None:
                shown = copy.copy(args)
                shown.to_dict = lambda: self._configuration(args)
                if event == "on_train_begin" and state.is_world_process_zero and self.name == "wandb":
                    wandb_run().start_run(self.recipe.output_dir, shown)
                getattr(self.callback, event)(shown, state, control, **kwargs)

            self._attempt(call)

        return handle

    def _configuration(self, args: TrainingArguments) -> dict[str, Any]:
        """What the tracker shows as the run's configuration, without secrets."""
        shown = args.to_dict() | {"recipe": dict(flatten(self.recipe.as_dict()))}
        return dict(json.loads(hide_url_users(json.dumps(shown, default=str))))

    def alert(self, finding: Finding) -> None:
        """Show a finding about the run's health in W&B."""
        level = "ERROR" if finding.level == "alarm" else "WARN"
        text = f"Since step {finding.since_step:,}. {finding.fix} See {finding.page}"
        if self.name == "wandb":
            self._attempt(lambda: wandb_run().send_alert(finding.problem, text, level))

    def _attempt(self, call: Callable[[], None]) -> None:
        if self.name in self.report_to and (problem := attempt(call, WAIT_S)):
            self.report_to.remove(self.name)
            print_message(f"{self.name} {problem}. Training goes on without it; metrics.jsonl has everything.")


def wandb_run() -> Any:
    """What this project adds to W&B. wandb is an optional package."""
    return importlib.import_module("rlvr.tracking.wandb_run")


def watch_trackers(trainer: Trainer, recipe: Recipe) -> Callable[[Finding], None]:
    """Replace the trackers' callbacks by `LiveTracker`s; return a function that sends a finding to each."""
    names = {callback: name for name, callback in INTEGRATION_TO_CALLBACK.items()}
    callbacks, report_to = trainer.callback_handler.callbacks, trainer.args.report_to
    callbacks[:] = [
        LiveTracker(names[type(callback)], callback, recipe, report_to) if type(callback) in names else callback
        for callback in callbacks
    ]

    def alert(finding: Finding) -> None:
        for tracker in callbacks:
            if isinstance(tracker, LiveTracker):
                tracker.alert(finding)

    return alert


def close_trackers(recipe: Recipe, outcome: str, senders: final_results.Senders) -> None:
    """End the run in W&B, and send evaluation and report to MLflow and W&B. An interrupted run sends them when resumed.

    Args:
        outcome: FINISHED, FAILED or KILLED.
        senders: of `final_results.start_senders`.
    """
    if problem := attempt(lambda: _finish_wandb(EXIT_CODES[outcome]), FINISH_WAIT_S):
        print_message(f"W&B {problem}: it may lack the last metrics. `wandb sync` sends them.")
    if outcome == "KILLED":
        final_results.stop_senders(senders)
    else:
        for message in final_results.add_results(recipe.output_dir, recipe.output_dir, has_ended=True, senders=senders):
            if not message.startswith("added to the run in MLflow"):  # which has had everything else all along
                print_message(message)


def _finish_wandb(exit_code: int) -> None:
    """End the run of this process, if it has one. W&B shows an interrupted one (75) as preempted."""
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None:
        if exit_code == 75:
            wandb.run.mark_preempting()
        wandb.finish(exit_code)


def attempt(call: Callable[[], None], timeout_s: float) -> str:
    """Call in a thread, which is left behind if it does not end in time; return what failed.

    The thread's context variables, in which trackio keeps its run, become those of this thread.
    """
    errors: list[Exception] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            context.run(call)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        return f"does not answer for {console.duration(timeout_s)}"
    for variable, value in context.items():
        if variable.get(None) is not value:
            variable.set(value)
    return describe_error(errors[0]) if errors else ""
