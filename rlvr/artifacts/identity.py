"""Identity of a run: everything that its numbers depend on, compared before a checkpoint is resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlvr.config import schema
from rlvr.config.recipe import Recipe
from rlvr.dataset_columns import column_values

if TYPE_CHECKING:
    from datasets import Dataset

# Keys that may change between a checkpoint and its continuation, because no reward, loss or prompt depends on them:
# paths and logging, intervals, timeouts, and what saves memory without changing a number.
RESUME_MAY_CHANGE = frozenset(
    {
        "output_dir",
        "resume_from_checkpoint",
        "max_runtime_s",
        "run_name",
        "report_to",
        "project",
        "trackio_space_id",
        "logging_steps",
        "logging_strategy",
        "logging_first_step",
        "log_level",
        "log_level_replica",
        "disable_tqdm",
        "log_completions",
        "num_completions_to_print",
        "log_unique_prompts",
        "save_strategy",
        "save_steps",
        "save_total_limit",
        "eval_strategy",
        "eval_steps",
        "eval_on_start",
        "evaluation",
        "ddp_timeout",
        "on_reward_error",
        "reward_timeout_s",
        "reward_batch_timeout_s",
        "reward_outage_timeout_s",
        "tool_timeout_s",
        "tool_budget_s",
        "dataloader_num_workers",
        "dataloader_pin_memory",
        "dataloader_prefetch_factor",
        "push_to_hub",
        "hub_model_id",
        "hub_strategy",
        "hub_private_repo",
        "ds3_gather_for_generation",
        "vllm_gpu_memory_utilization",
        "vllm_server_host",
        "vllm_server_port",
        "vllm_max_num_batched_tokens",
        "per_device_generation_batch_size",
        "vllm_server_base_url",
        "vllm_server_timeout",
        "vllm_group_port",
        "rollout_check_steps",
        "rollouts",  # use_vllm has what it chose
    }
)


_PARTS_OF_MODEL = {
    "weights": "the weights or the configuration",
    "tokenizer": "the tokenizer or the chat template",
}


@dataclass(frozen=True)
class Identity:
    """Everything that a run's numbers depend on.

    Attributes:
        recipe: the resolved recipe, as in YAML.
        processes: how many processes train together.
        launcher: "plain" (python and ddp: their checkpoints are the same), "zero2", "zero3" …
        rows: digest of the training prompts in their order, and of their difficulty if a curriculum orders them.
        golds: digest of their other columns, such as golds and tests. If they change, a run continues, and says so.
        model: digests of the base's "weights" and "tokenizer" if it is a folder, else its "revision".
    """

    recipe: Mapping[str, Any]
    processes: int
    launcher: str
    rows: str
    golds: str = ""
    model: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, recipe: Recipe, train: Dataset, processes: int, launcher: str, model: Mapping[str, str] | None = None
    ) -> Identity:
        content = json.loads(json.dumps(recipe.as_dict()))  # as a checkpoint's marker returns it
        ordering = ["prompt"]
        if recipe.settings.get("curriculum", "none") != "none" and "difficulty" in train.column_names:
            ordering.append("difficulty")
        others = sorted(set(train.column_names) - {"prompt"})
        launcher = "plain" if launcher in ("python", "ddp") else launcher
        rows, golds = _digest_of(train, ordering), _digest_of(train, others)
        return cls(content, processes, launcher, rows, golds, dict(model or {}))

    def differences(self, earlier: Identity) -> list[str]:
        """The differences to an earlier run that change numbers, a phrase each. More training is none."""
        phrases = []
        defaults = schema.defaults()  # a run's recipe.yaml has them, the recipe that it was made from has not
        # The commits themselves are compared, whether the recipe names them or not.
        known = {"model_revision"} if "revision" in self.model and "revision" in earlier.model else set()
        if more_training(self.recipe, earlier.recipe):
            known |= {"max_steps", "num_train_epochs"}
        for key in sorted({*self.recipe, *earlier.recipe} - RESUME_MAY_CHANGE - known):
            default = defaults.get(key, "not given")
            was, now = (_without_locations(key, run.recipe.get(key, default)) for run in (earlier, self))
            if was != now:
                phrases += [f"{path} was {before}, now {after}" for path, before, after in _changes(key, was, now)]
        if self.recipe.get("dynamic_sampling"):  # the metric says which groups are sampled again
            was, now = ((run.recipe.get("evaluation") or {}).get("metric") for run in (earlier, self))
            if was != now:
                phrases.append(f"evaluation.metric was {was}, now {now}, and dynamic_sampling depends on it")
        if self.processes != earlier.processes:
            phrases.append(f"{earlier.processes} processes trained it, now there are {self.processes}")
        if self.launcher != earlier.launcher:
            phrases.append(f"the launcher was {earlier.launcher}, now {self.launcher} (--config_file)")
        for part, digest in self.model.items():
            was = earlier.model.get(part, digest)
            if was != digest and part == "revision":
                phrases.append(f"the base's revision on the hub was {was}, now {digest}. Set model_revision: {was}")
            elif was != digest:
                phrases.append(f"{_PARTS_OF_MODEL[part]} of {self.recipe['model_name_or_path']} changed")
        if self.rows != earlier.rows:
            phrases.append("the task returns other training prompts, another order or, in a curriculum, difficulty")
        return phrases


def more_training(now: Mapping[str, Any], was: Mapping[str, Any]) -> str:
    """The change by which a recipe trains for more steps than an earlier one, as "max_steps was 20, now 40".

    "" if it doesn't, if that is unknown, or if a curriculum orders the rows by the number of steps.
    """
    defaults = schema.defaults()
    steps, earlier_steps = (recipe.get("max_steps", defaults["max_steps"]) for recipe in (now, was))
    key = "max_steps" if steps > 0 else "num_train_epochs"
    after, before = (recipe.get(key, defaults[key]) for recipe in (now, was))
    same_key = (steps > 0) == (earlier_steps > 0)
    if not same_key or after <= before or now.get("curriculum", "none") != "none":
        return ""
    return f"{key} was {before:g}, now {after:g}"


def _digest_of(rows: Dataset, columns: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in columns:
        for value in column_values(rows, name):
            digest.update(json.dumps(value, default=str).encode())
    return digest.hexdigest()


def _without_locations(key: str, value: Any) -> Any:
    """Leave out where each reward is computed, and in which folder a plug-in is: its scores are the same everywhere."""
    if key in ("rewards", "tasks", "environment") and isinstance(value, list):
        return [_without_locations("", {part: entry[part] for part in entry if part != "where"}) for entry in value]
    if key in ("task", "environment") or (not key and isinstance(value, dict)):
        return {
            part: item.rpartition("/")[2].removesuffix(".py") if part in ("name", "gate") and item else item
            for part, item in value.items()
        }
    return value


def _changes(key: str, was: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the changed parts of a value by their dotted keys; rewards by their names."""
    if isinstance(was, list) and isinstance(now, list) and key == "rewards":
        was, now = ({entry["name"]: entry for entry in entries} for entries in (was, now))
        if list(was) != list(now) and set(was) == set(now):
            yield "the order of rewards", ", ".join(was), ", ".join(now)
    if not (isinstance(was, Mapping) and isinstance(now, Mapping)):
        yield key, was, now
        return
    for part in sorted({*was, *now}):
        before, after = was.get(part, "not given"), now.get(part, "not given")
        if before != after:
            yield from _changes(f"{key}.{part}", before, after)
