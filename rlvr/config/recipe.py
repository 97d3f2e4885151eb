"""A recipe: one YAML file that says everything about a run, read strictly.

    recipe = load_recipe(Path("recipes/demo-arithmetic.yaml"), ["--learning_rate", "1e-4", "--task.shots", "4"])

Flat keys are the fields of TRL's `GRPOConfig` and `ModelConfig`, under their own names, and a few of ours beside them
(see rlvr/config/schema.py). Four sections are ours: `task`, `rewards`, `evaluation` and `sagemaker`. Every fault in the
file is found in one pass and reported with its line, in words that say how to mend it. Nothing here imports torch.

YAML is read by its 1.2 rules: `1e-6` is a number, and `no` (as in `save_strategy: no`) is a word, not `false`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rlvr.config import schema
from rlvr.config.overrides import apply_override, parse_overrides
from rlvr.config.reward_location import read_where
from rlvr.config.sagemaker import SageMakerSettings, read_settings
from rlvr.config.yaml_reader import read_text
from rlvr.errors import InputError

# Where we depart from the defaults of TRL 1.16, and why.
DEFAULTS: dict[str, Any] = {
    # TRL reports to nobody unless told; a run that left no trace can't be compared with the next one.
    "report_to": "mlflow",
    # GRPO steps are long (a generation each): one line a step is what people watch.
    "logging_steps": 1,
    # A GRPO step takes a minute rather than a second, so transformers' 500 steps between checkpoints are a working day.
    "save_steps": 25,
    "save_total_limit": 2,
    # Completions are the first thing to look at when a reward misbehaves. TRL's console table would bury the progress.
    "log_completions": True,
    "num_completions_to_print": 0,
    # TRL's 0.05 is active while sampling and while scoring, which makes both noisy for nothing.
    "lora_dropout": 0.0,
    # TRL still calls it gradient_checkpointing, the name that transformers 5.23 has deprecated.
    "activation_checkpointing": True,
    # transformers looks for unused parameters when checkpointing is off: slower, and a warning every run. All weights
    # of a dense language model are used; mixtures of experts need true.
    "ddp_find_unused_parameters": False,
}
# TRL's default is float32, which with load_in_4bit also becomes the type that 4-bit weights are computed in.
PEFT_DTYPE = "bfloat16"

SPLITS = ("train", "validation", "test")
SECTIONS = ("task", "rewards", "evaluation", "sagemaker")


@dataclass(frozen=True)
class TaskSpec:
    """The `task:` section: `name` is a file in tasks/, the rest are options of its function."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RewardSpec:
    """One entry of the `rewards:` list.

    Attributes:
        name: a file in rewards/, `path/to/file.py[:function]`, or a dotted import path.
        weight: factor of this reward in the sum that a completion is scored with.
        options: keyword-only parameters of the function.
        gate: name of another reward in the list; this one counts only where that one is positive.
        where: "local" for a worker process beside the training process, "trainer" for the training process itself,
            "http://host:port" for a reward server, several with commas between, "ray" or "ray://head:10001" for a Ray
            cluster; None for what the function says of itself, else local.
    """

    name: str
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    gate: str | None = None
    where: str | None = None


PLACES = ("local", "trainer")


@dataclass(frozen=True)
class Reference:
    """A published score of the untrained model, to hold our own against.

    Attributes:
        score: as a share, 0.416 for 41.6 %.
        source: who measured it, and how, in a few words.
    """

    score: float
    source: str


@dataclass(frozen=True)
class EvaluationSpec:
    """The `evaluation:` section: what run_grpo.py measures before and after training, greedily, on held-out rows.

    Attributes:
        split: "test", or "validation" while hyperparameters are being chosen. "train" is refused.
        rows: how many rows, the first ones of the split; None for all.
        metric: the reward that decides whether an answer is right (its value is at least 1); by default the one with
            the largest weight in `rewards`.
        batch_size: prompts generated at a time.
        max_new_tokens: tokens a completion may have; by default the recipe's `max_completion_length`.
        reference: a published score of the base; where ours lies far below it, the evaluation is suspect.
    """

    split: str = "test"
    rows: int | None = None
    metric: str | None = None
    batch_size: int = 64
    max_new_tokens: int | None = None
    reference: Reference | None = None


@dataclass(frozen=True)
class Recipe:
    """A recipe that has passed every check that needs neither data nor model.

    Attributes:
        path: the file that it was read from.
        task, rewards, evaluation: our sections; `evaluation` is None when the recipe asks for no measurement.
        settings: flat keys for TRL's dataclasses, the recipe's own over our DEFAULTS.
        sagemaker: where scripts/sagemaker.py runs it; None if the recipe doesn't say.
        warnings: what its text should no longer hold.
    """

    path: Path
    task: TaskSpec
    rewards: tuple[RewardSpec, ...]
    evaluation: EvaluationSpec | None
    settings: Mapping[str, Any]
    sagemaker: SageMakerSettings | None = None
    warnings: tuple[str, ...] = ()

    @property
    def output_dir(self) -> Path:
        """Where the run writes; `runs/<name of the recipe>` unless the recipe says otherwise."""
        return Path(self.settings["output_dir"])

    def settings_for(self, belongs_to: str) -> dict[str, Any]:
        """The flat keys of "training" (TRL's GRPOConfig), "model" (its ModelConfig) or "run" (ours)."""
        known = schema.fields()
        return {key: value for key, value in self.settings.items() if known[key].belongs_to == belongs_to}

    def as_dict(self) -> dict[str, Any]:
        """The recipe as it would stand in YAML, overrides and defaults included; loading it gives the same recipe.

        The section `sagemaker` is left out: where a run takes place is no part of what it is.
        """
        out: dict[str, Any] = dict(self.settings)
        out["task"] = {"name": self.task.name, **self.task.options}
        out["rewards"] = [
            {"name": spec.name, "weight": spec.weight}
            | ({"options": dict(spec.options)} if spec.options else {})
            | ({"gate": spec.gate} if spec.gate else {})
            | ({"where": spec.where} if spec.where else {})
            for spec in self.rewards
        ]
        if self.evaluation is not None:
            out["evaluation"] = {key: value for key, value in vars(self.evaluation).items() if value is not None}
            if self.evaluation.reference is not None:
                out["evaluation"]["reference"] = asdict(self.evaluation.reference)
        return out


class RecipeError(InputError):
    """What is wrong with a recipe's text.

    Attributes:
        faults: a sentence each.
        rest: the recipe without what is wrong in it, for other checks to go on with; None where too little is left.
    """

    def __init__(self, faults: Sequence[str], rest: Recipe | None) -> None:
        self.faults = tuple(fault.replace("?.", "?") for fault in faults)
        self.rest = rest
        super().__init__("\n".join(self.faults))


def load_recipe(path: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """Reads and checks a recipe.

    Args:
        path: the YAML file.
        overrides: command-line words: `--key value`, `--key=value`, or `--key` alone for true. Keys of sections are
            dotted (`--task.shots 4`, `--evaluation.rows 100`); a reward is reached by its name
            (`--rewards.answer_format.weight 0.2`). Values are read as YAML.

    Raises:
        RecipeError: with one line for each fault.
        InputError: it is no file, or no YAML.
    """
    path = Path(path)
    content, lines = read_text(path)
    faults: list[str] = []
    own_model = content.get("model_name_or_path")
    warnings: list[str] = []
    for old in [key for key in content if key in schema.DEPRECATED]:
        key, value = _upgraded(old, content.pop(old))
        warnings.append(f"{path}, line {lines[old]}: {old} is deprecated. Use {key}.")
        if key in content:
            faults.append(f"{path}, line {lines[old]}: {old} is the former name of {key}. Remove it.")
        else:
            content[key], lines[key] = value, lines[old]
    given = []
    for key, value in parse_overrides(overrides):
        if key in schema.DEPRECATED:
            old, (key, value) = key, _upgraded(key, value)
            warnings.append(f"--{old} is deprecated. Use --{key}.")
        given.append((key, value))
    for key, value in given:
        fault = apply_override(content, key, value, SECTIONS)
        if fault:
            faults.append(f"--{key}: {fault}")
        else:
            lines.pop(key.split(".")[0], None)

    def where(key: str) -> str:
        if key not in content:
            return f"{path}: {key}"
        return f"{path}, line {lines[key]}: {key}" if key in lines else f"--{key}"

    settings: dict[str, Any] = {}
    for key, value in content.items():
        if key in SECTIONS:
            continue
        if key in schema.REMOVED:
            if value is None:
                continue  # a resolved recipe of an earlier release holds `reward_hedge_s: null`
            faults.append(f"{where(key)} is not a recipe key. {schema.REMOVED[key]}.")
        elif key not in schema.fields():
            known = [name for name in (*schema.fields(), *SECTIONS) if name not in schema.REMOVED]
            faults.append(f"{where(key)} is not a recipe key{_did_you_mean(key, known)}.")
        elif fault := schema.fault_of(key, value):
            faults.append(f"{where(key)} {fault}.")
        else:
            settings[key] = value

    task = _read_task(content.get("task"), where("task"), faults)
    rewards = _read_rewards(content.get("rewards"), where("rewards"), faults)
    before = len(faults)
    evaluation = _read_evaluation(content.get("evaluation"), where("evaluation"), rewards, faults)
    unclear = len(faults) > before
    told = any(key == "evaluation" or key.startswith("evaluation.reference") for key, _ in given)
    if evaluation is not None and content.get("model_name_or_path") != own_model and not told:
        evaluation = replace(evaluation, reference=None)  # it was of the recipe's own model
    sagemaker = read_settings(content.get("sagemaker"), where("sagemaker"), faults)
    if "model_name_or_path" not in content:
        faults.append(f"{path}: model_name_or_path is missing: say which model to train (a hub id or a folder).")
    if faults and (task is None or not rewards or "model_name_or_path" not in settings):
        raise RecipeError(faults, None)
    assert task is not None  # a missing task is among the faults

    defaults = {**DEFAULTS, **{key: default for key, (_, default) in schema.OWN.items()}}
    if settings.get("use_peft"):
        defaults["dtype"] = PEFT_DTYPE
    settings = {"output_dir": f"runs/{path.stem}", **defaults, **settings}
    settings = {key: schema.as_its_type(key, value) for key, value in settings.items()}
    recipe = Recipe(path, task, tuple(rewards), evaluation, settings, sagemaker, tuple(warnings))
    if faults:
        rest = replace(recipe, rewards=_usable(rewards), evaluation=None if unclear else evaluation)
        raise RecipeError(faults, rest)
    return recipe


def _upgraded(key: str, value: Any) -> tuple[str, Any]:
    """The successor of a deprecated key, and its value."""
    successor = schema.DEPRECATED[key]
    former = schema.DEPRECATED_VALUES.get(successor, {})
    return successor, former.get(value, value) if isinstance(value, str) else value


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Writes the resolved recipe (overrides and defaults included) so that it can be run again as it is."""
    path.write_text(resolved_text(recipe), encoding="utf-8")


def resolved_text(recipe: Recipe) -> str:
    """What `write_recipe` writes."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = False
    buffer = io.StringIO()
    yaml.dump(recipe.as_dict(), buffer)
    return f"# {recipe.path.name} as it ran: overrides and defaults included.\n{buffer.getvalue()}"


def _read_task(value: Any, where: str, faults: list[str]) -> TaskSpec | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        example = f"name: {value}" if isinstance(value, str) else "name: gsm8k, shots: 8"
        faults.append(f"{where} must be a mapping with a name, like task: {{{example}}}.")
        return None
    return TaskSpec(value["name"], {key: item for key, item in value.items() if key != "name"})


def _read_rewards(value: Any, where: str, faults: list[str]) -> list[RewardSpec]:
    if not isinstance(value, list) or not value:
        example = value if isinstance(value, str) else "math_correctness"
        faults.append(f"{where} must be a list with one entry a reward, like - name: {example}.")
        return []
    specs = []
    for number, entry in enumerate(value, start=1):
        at = f"{where}, entry {number}"
        if isinstance(entry, str):
            entry = {"name": entry}
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            faults.append(f"{at} must be a mapping with a name, like - name: math_correctness.")
            continue
        known = ("name", "weight", "options", "gate", "where")
        for key in entry:
            if key not in known:
                inside = " (options of the function go under options:)" if not schema.nearest(key, known) else ""
                faults.append(f"{at} ({entry['name']}): {key} is not a key{_did_you_mean(key, known)}{inside}.")
        weight, options, gate = entry.get("weight", 1.0), entry.get("options") or {}, entry.get("gate")
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            faults.append(f"{at} ({entry['name']}): weight is {weight!r}, but should be a number.")
            weight = 1.0
        if not isinstance(options, dict):
            faults.append(f"{at} ({entry['name']}): options must be a mapping, like options: {{tolerance: 0}}.")
            options = {}
        where_it_runs = entry.get("where")
        servers, fault = read_where(where_it_runs)
        if fault is not None:
            faults.append(f"{at} ({entry['name']}): where {fault}.")
        elif servers is None and where_it_runs is not None and where_it_runs not in PLACES:
            places = f"{', '.join(PLACES)}, ray or http://host:port"
            faults.append(f"{at} ({entry['name']}): where is {where_it_runs!r}, but should be {places}.")
        specs.append(RewardSpec(entry["name"], float(weight), options, gate, servers or where_it_runs))
    names = [spec.name for spec in specs]
    for name in sorted({name for name in names if names.count(name) > 1}):
        faults.append(f"{where}: {name} is listed twice; TRL would merge their figures under one name. Keep one.")
    if specs and all(spec.weight == 0 for spec in specs):
        faults.append(f"{where}: every weight is 0, so nothing could be learnt. Give one of them a weight.")
    for spec in specs:
        if spec.gate is not None and (spec.gate == spec.name or spec.gate not in names):
            others = [name for name in names if name != spec.name]
            faults.append(
                f"{where}: the gate of {spec.name} is {spec.gate!r}, which is no other reward of this recipe"
                f"{_did_you_mean(str(spec.gate), others)}."
            )
    return specs


def _usable(specs: Sequence[RewardSpec]) -> tuple[RewardSpec, ...]:
    """Rewards without what may be wrong with them as a list: each once, ungated, and called here."""
    return tuple({spec.name: replace(spec, gate=None, where=None) for spec in specs}.values())


def _read_evaluation(value: Any, where: str, rewards: Sequence[RewardSpec], faults: list[str]) -> EvaluationSpec | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        faults.append(f"{where} must be a mapping, like evaluation: {{split: test}}.")
        return None
    kinds: dict[str, type] = {"split": str, "rows": int, "metric": str, "batch_size": int, "max_new_tokens": int}
    given: dict[str, Any] = {}
    for key, item in value.items():
        if key == "reference":
            given[key] = _read_reference(item, f"{where}: reference", faults)
        elif key not in kinds:
            faults.append(f"{where}: {key} is not a key{_did_you_mean(key, (*kinds, 'reference'))}.")
        elif item is not None and (not isinstance(item, kinds[key]) or isinstance(item, bool)):
            word = "text" if kinds[key] is str else "a whole number"
            faults.append(f"{where}: {key} is {item!r}, but should be {word}.")
        elif isinstance(item, int) and item < 1:
            faults.append(f"{where}: {key} is {item}, but should be at least 1.")
        else:
            given[key] = item
    spec = EvaluationSpec(**given)
    if spec.split not in SPLITS[1:]:
        faults.append(
            f"{where}: split is {spec.split!r}, but should be test or validation: "
            "an accuracy on rows that training saw says nothing."
        )
    if spec.metric is None and rewards:
        best = max(rewards, key=lambda reward: reward.weight)
        spec = EvaluationSpec(**{**vars(spec), "metric": best.name})
    return spec


def _read_reference(value: Any, where: str, faults: list[str]) -> Reference | None:
    if value is None:
        return None
    example = 'reference: {score: 0.416, source: "Qwen2.5 report, 4-shot"}'
    if not isinstance(value, dict) or set(value) != {"score", "source"}:
        faults.append(f"{where} must have a score and a source, and no more, like {example}.")
        return None
    score, source = value["score"], value["source"]
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 < score <= 1:
        faults.append(f"{where}: score is {score!r}, but should be a share of the rows, like 0.416 for 41.6 %.")
        return None
    if not isinstance(source, str) or not source.strip():
        faults.append(f"{where}: source is {source!r}, but should say who measured it and how, like {example}.")
        return None
    return Reference(float(score), source.strip())


def _did_you_mean(name: str, known: Any) -> str:
    close = schema.nearest(name, known)
    return f"; did you mean {close[0]}?" if close else ""
