"""Evaluate models, and bring what belongs to their run up to date: scripts/evaluate.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlvr import console
from rlvr.artifacts import directory
from rlvr.artifacts.result_record import record_evaluation
from rlvr.artifacts.run_lock import lock_run
from rlvr.config.recipe import load_recipe
from rlvr.evaluation.engines import check_engine
from rlvr.evaluation.evaluation_plan import EvaluationPlan, evaluate_models
from rlvr.evaluation.output_folder import check_not_running
from rlvr.export.model_card import renew_cards
from rlvr.report.page import write_report
from rlvr.scoring.reward import RewardError
from rlvr.tracking import final_results
from rlvr.training import launch


def evaluate(plan: EvaluationPlan, limit: int | None, interrupts: Sequence[int]) -> int:
    """Evaluate, and write the results to the plan's folder; return the exit code.

    Args:
        limit: only the first rows were asked for.
        interrupts: signals that arrived (`console.remembered_interrupts`).
    """
    check_not_running(plan.folder)
    state = launch.join(plan.recipe)
    check_engine(plan.engine, plan.recipe, state.num_processes)
    console.silence_loading_bars()
    try:
        with lock_run(plan.folder, state):
            adapter = evaluate_models(plan, state, interrupts)
            if state.is_main_process:
                _update_run(plan.folder, adapter, limit)
    except RewardError as error:
        console.error(f"{error}\n\nThe answers are kept: correct the reward, and the same command scores them.")
        return 1
    except Exception as error:
        if type(error).__name__ != "OutOfMemoryError":  # of torch, or of vLLM
            raise
        console.error(
            "Out of GPU memory: the batch is too large. The answers so far are kept. Continue with the same "
            "command and a smaller --evaluation.batch_size."
        )
        return 1
    state.destroy_process_group()
    return 0


def _update_run(folder: Path, adapter: Path | None, limit: int | None) -> None:
    """Write the record and the report of a run again, and add results of all rows to its trackers."""
    is_run = (folder / directory.STATUS).is_file()
    if is_run:
        console.info(f"  {write_report(folder)}")
    own = adapter if is_run and adapter is not None and adapter.resolve().parent == folder.resolve() else None
    if own is not None:
        renew_cards(folder, own)
    run = folder if is_run or adapter is None else adapter.resolve().parent
    for message in final_results.add_results(run, folder) if limit is None else ():
        console.info(f"  {message}")
    if own is not None and (folder / "recipe.yaml").is_file():
        record_evaluation(folder, load_recipe(folder / "recipe.yaml"), own.resolve().name)
