"""A `GRPOTrainer` that plays environments in worker processes, the calls of a batch at the same time."""

from __future__ import annotations

from typing import Any

import torch

from rlvr import console
from rlvr.environments.messages import as_table
from rlvr.environments.proxies import Environments
from rlvr.training.checkpoint_trainer import CheckpointTrainer
from rlvr.training.tool_turns import ToolTurns

MAX_REPORTED_ENVIRONMENTS = 3  # different causes of failed environments that one batch prints


class EnvironmentTrainer(CheckpointTrainer):
    """Play the environments of a recipe. Without one, it is `CheckpointTrainer`.

    A row whose environment fails leaves the update. Rewards get the token ids that the model wrote, without those of
    tool results.

    Args:
        environments: None where the recipe has none.
    """

    def __init__(self, *args: Any, environments: Environments | None = None, **kwargs: Any) -> None:
        if environments is not None:
            kwargs["environment_factory"] = environments.factories
        self._environments = environments
        self._turns = ToolTurns()
        super().__init__(*args, **kwargs)
        if environments is not None:
            self.refuse_deep_calls()

    @property
    def plays_environments(self) -> bool:
        return self._environments is not None

    def conversation_columns(self) -> dict[str, list[str]]:
        """Columns of the table of completions that describe the conversations of this rank."""
        return self._turns.columns() if self.plays_environments else {}

    def sample_batch(self, inputs: Any) -> dict[str, Any]:
        if self._environments is None:
            return super().sample_batch(inputs)
        self._environments.begin(inputs, self.micro_step)
        output = super().sample_batch(inputs)
        rows = len(inputs) * self.accelerator.num_processes
        self.replace_last_completions(as_table(self.last_completions(rows)))
        return output

    def generate_completions(self, prompts: Any) -> Any:
        output = super().generate_completions(prompts)
        if self._environments is not None:
            self._add_tool_metrics(self._environments, output)
        return output

    def _add_tool_metrics(self, environments: Environments, output: Any) -> None:
        """Add what TRL doesn't log of tool calls; collective."""
        _, completion_ids, tool_mask, completions = output[:4]
        ended = [bool(ids) and ids[-1] in self.eos_token_ids for ids in completion_ids]
        self._turns = ToolTurns(
            completions, tool_mask, ended, self.max_tool_calling_iterations, self.take_result_seconds()
        )
        sums = [environments.failed_calls(), environments.seconds(), *self._turns.sums()]
        failed, seconds, turns, cut, rows = self.accelerator.reduce(
            torch.tensor(sums, dtype=torch.float64, device=self.accelerator.device), reduction="sum"
        ).tolist()
        if self.tools:
            calls = self.last_metric("tools/call_frequency") * rows
            # TRL has counted the calls that failed before they reached a worker.
            before = self.last_metric("tools/failure_frequency")
            self.replace_metric("tools/failure_frequency", before + (failed / calls if calls else 0.0))
        self.add_metric("tools/turns", turns / rows)
        self.add_metric("tools/cut_by_iterations", cut / rows)
        self.add_metric("tools/seconds", seconds / rows)

    def compute_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        if self._environments is None:
            return super().compute_rewards(inputs, prompts, completions, completion_ids_list)
        own_ids = self._turns.own_tokens(completion_ids_list)
        raw = super().compute_rewards(inputs, prompts, completions, own_ids)
        raw[self._failed_environments(self._environments)] = torch.nan
        return raw

    def _failed_environments(self, environments: Environments) -> torch.Tensor:
        """(completions of all ranks,) whether the row's environment failed; reports the causes. Collective."""
        causes = environments.failures()
        failed = self.accelerator.gather(
            torch.tensor([bool(cause) for cause in causes], device=self.accelerator.device)
        )
        self.add_metric("environment/failed_fraction", failed.float().mean().item())
        for cause in sorted({cause for cause in causes if cause})[:MAX_REPORTED_ENVIRONMENTS]:
            rows = causes.count(cause)
            console.error(
                f"\nAn environment failed in {rows} of {len(causes)} rollouts, which leave the update: {cause}."
            )
        return failed

    def end_rollouts(self) -> None:
        super().end_rollouts()
        if self._environments is not None:
            self._environments.workers.close()
