"""A recipe: one YAML file that describes a run completely.

    recipe = load_recipe(Path("recipes/demo-arithmetic.yaml"), ["--learning_rate", "1e-4", "--task.shots", "4"])

Flat keys are the fields of TRL's `GRPOConfig` and `ModelConfig`, under their own names, and a few of ours
(rlvr/config/schema.py). Five sections are ours: `task`, `environment`, `rewards`, `evaluation` and `sagemaker`. One
pass reports every problem with its line and its fix. Nothing here imports torch.

YAML is read by its 1.2 rules: `1e-6` is a number, and `no` (as in `save_strategy: no`) is a word, not `false`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rlvr.config import foreign_keys, project, schema
from rlvr.config.inheritance import KEY as EXTENDS
from rlvr.config.key_location import KeyLocation, Lines
from rlvr.config.overrides import parse_overrides
from rlvr.config.recipe_text import RecipeText
from rlvr.config.sagemaker import SageMakerSettings, read_settings
from rlvr.config.sections import read_environments, read_evaluation, read_rewards, read_task, read_tasks
from rlvr.config.specs import EnvironmentSpec, EvaluationSpec, RewardSpec, TaskSpec
from rlvr.errors import InputError, Problem
from rlvr.formatting import flatten

# Our defaults that differ from those of TRL 1.16.
DEFAULTS: dict[str, Any] = {
    # TRL's default is no tracker, but a run without a trace can't be compared with the next one.
    "report_to": "mlflow",
    # GRPO steps are long (a generation each), so log each of them.
    "logging_steps": 1,
    # A GRPO step takes a minute rather than a second: transformers' 500 steps between checkpoints take a working day.
    "save_steps": 25,
    "save_total_limit": 2,
    # Completions are the first thing to look at when a reward misbehaves. TRL's console table would hide the progress.
    "log_completions": True,
    "num_completions_to_print": 0,
    # TRL samples and scores with dropout active (0.05), which only adds noise.
    "lora_dropout": 0.0,
    # TRL's name is gradient_checkpointing, which transformers 5.23 has deprecated.
    "activation_checkpointing": True,
    # Without checkpointing, transformers searches for unused parameters: slower, with a warning. A dense language model
    # uses all its weights; mixtures of experts need true.
    "ddp_find_unused_parameters": False,
}
# TRL's default is float32, which with load_in_4bit also becomes the type that 4-bit weights are computed in.
PEFT_DTYPE = "bfloat16"
DEFAULT_SEED = 42  # of TRL

# What libraries derived from the other keys; a run writes it into its recipe.yaml, and nothing reads it from a recipe.
RESOLVED = "resolved"
SECTIONS = ("task", "tasks", "environment", "rewards", "evaluation", "sagemaker")
MAX_LISTED = 5
_KEYS_BY_SECTION = {
    "evaluation": {one.name for one in fields(EvaluationSpec)},
    "sagemaker": {one.name for one in fields(SageMakerSettings)},
}
SECTION_KEYS = {one.name for one in fields(RewardSpec)}.union(*_KEYS_BY_SECTION.values())


@dataclass(frozen=True)
class Recipe:
    """A recipe that has passed every check that needs neither data nor model.

    Attributes:
        path: the file that it was read from.
        tasks: one for the section `task`, or one for each entry of the list `tasks`.
        rewards, evaluation: the sections; `evaluation` is None if nothing is measured.
        environments: the section `environment`; empty for completions of one turn.
        settings: flat keys for TRL's dataclasses, the recipe's own over our DEFAULTS.
        sagemaker: where scripts/sagemaker.py runs it; None without such a section.
        lines: where its keys were written, for messages.
        overrides: the words of the command line that changed it.
    """

    path: Path
    tasks: tuple[TaskSpec, ...]
    rewards: tuple[RewardSpec, ...]
    evaluation: EvaluationSpec | None
    settings: Mapping[str, Any]
    sagemaker: SageMakerSettings | None = None
    environments: tuple[EnvironmentSpec, ...] = ()
    lines: Lines = field(default_factory=dict, compare=False, repr=False)
    overrides: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def output_dir(self) -> Path:
        """The run directory; by default `runs/<name of the recipe>`, and `-seed<N>` for a seed of the command line."""
        return Path(self.settings["output_dir"])

    @property
    def task_name(self) -> str:
        """The name of the task, or the labels of several."""
        return " + ".join(task.label or task.name for task in self.tasks)

    @property
    def is_mixture(self) -> bool:
        """Whether the recipe has `tasks:`: rows then have the column `task`, and results are also by task."""
        return bool(self.tasks[0].label)

    def value(self, key: str) -> Any:
        """Return the value of a flat key: the recipe's own, ours, or TRL's default."""
        return value_of(self.settings, key)

    def settings_for(self, belongs_to: str) -> dict[str, Any]:
        """Return the flat keys of "training" (TRL's GRPOConfig), "model" (its ModelConfig) or "run" (ours)."""
        known = schema.fields()
        return {key: value for key, value in self.settings.items() if known[key].belongs_to == belongs_to}

    def locate(self, problem: Problem, section: str = "") -> Problem:
        """Add to an error where its key was written, if it names no place itself.

        Args:
            section: the dotted key to name if the problem's own was not written.
        """
        own = (str(problem.key), str(problem.key).partition(".")[0])  # the key, or the section that it is in
        names = [own[0], f"task.{problem.key}", f"rewards.{problem.key}"]
        names += [f"tasks.{part.name}.{problem.key}" for part in self.tasks]
        names += [name for name in self.lines if name.endswith(f".options.{problem.key}")]
        names += ["environment" for spec in self.environments if spec.name == problem.key]
        keys = [name for name in (*names, section, own[1]) if name in self.lines]
        if problem.level != "error" or problem.path is not None or not keys:
            return problem
        if problem.row is not None and keys[0] not in own:
            return problem  # its place is that row
        place = self.lines[keys[0]]
        if place is None:
            return replace(problem, message=f"--{keys[0]}: {problem.message.removeprefix(f'{keys[0]}: ')}")
        changes = ", ".join(
            f"--{each}" for each, at in self.lines.items() if at is None and each.startswith(f"{keys[0]}.")
        )
        also = f", with {changes} on the command line" if changes else ""
        message = f"{place.path}, line {place.number}{also}: {problem.message}"
        return replace(problem, message=message, path=place.path, line=place.number)

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the YAML file, overrides and defaults included. Loading it gives the same recipe.

        The section `sagemaker` is left out: the place of a run is no part of what the run is.
        """
        rewards = [
            {
                key: list(value) if key == "applies_to" else value
                for key, value in asdict(spec).items()
                if value not in (None, {})
            }
            for spec in self.rewards
        ]
        tasks = [task.as_dict() for task in self.tasks]
        section = {"tasks": tasks} if self.is_mixture else {"task": tasks[0]}
        content: dict[str, Any] = {**self.settings, **section, "rewards": rewards}
        if self.environments:
            specs = [asdict(spec) for spec in self.environments]
            content["environment"] = specs if len(specs) > 1 else specs[0]
        if self.evaluation is not None:
            content["evaluation"] = {key: value for key, value in asdict(self.evaluation).items() if value is not None}
        return content


def value_of(settings: Mapping[str, Any], key: str) -> Any:
    """Return the value of a flat key of a recipe's settings: their own, ours, or TRL's default."""
    return settings[key] if key in settings else DEFAULTS.get(key, schema.fields()[key].default)


class RecipeError(InputError):
    """Problems of a recipe's text.

    Attributes:
        rest: the recipe without what is wrong in it, so that other checks can go on; None if too little is left.
    """

    def __init__(self, problems: Sequence[Problem], rest: Recipe | None) -> None:
        super().__init__(problems=problems)
        self.rest = rest


def load_recipe(path: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe.

    Args:
        path: the YAML file.
        overrides: command-line words: `--key value`, `--key=value`, or `--key` alone for true. Keys of sections are
            dotted (`--task.shots 4`, `--evaluation.rows 100`); a reward is reached by its name
            (`--rewards.answer_format.weight 0.2`). Values are read as YAML.

    Raises:
        RecipeError: with all problems of the text.
        InputError: there is no such file, or it is no YAML.
    """
    text = RecipeText(Path(path))
    program = foreign_keys.find_program(text.content)
    if program is not None:
        raise RecipeError(_foreign_problems(text, program), None)
    model_of_file = text.content.get("model_name_or_path")
    seed_of_file = text.content.get("seed", DEFAULT_SEED)
    text.override(parse_overrides(overrides, text.problems), SECTIONS)
    text.expand_home()
    content, problems = text.content, text.problems
    _locate_plugins(content, text)

    settings = _read_flat_keys(text)
    _settle_rollouts(settings, text)
    tasks = _read_tasks(content, text)
    labels = tuple(task.label for task in tasks if task.label)
    environments = read_environments(content.get("environment"), text.location("environment"), problems)
    rewards = read_rewards(content.get("rewards"), text.location("rewards"), problems, labels)
    problems_before = len(problems)
    evaluation = read_evaluation(content.get("evaluation"), text.location("evaluation"), rewards, problems, labels)
    evaluation_is_usable = len(problems) == problems_before
    other_model = content.get("model_name_or_path") != model_of_file
    if evaluation is not None and other_model and not text.is_overridden("evaluation", "evaluation.reference"):
        evaluation = replace(evaluation, reference=None)  # it is a score of the recipe's own model
    sagemaker = read_settings(content.get("sagemaker"), text.location("sagemaker"), problems)
    if "model_name_or_path" not in content:
        fix = "is missing. Name the model to train: a hub id or a folder."
        problems.append(text.location("model_name_or_path").problem(fix, "missing-key"))
    if not tasks or not rewards or "model_name_or_path" not in settings:
        raise RecipeError(problems, None)

    defaults = {**DEFAULTS, **{key: default for key, (_, default, _) in schema.OWN.items()}}
    if settings.get("use_peft"):
        defaults["dtype"] = PEFT_DTYPE
    seed = settings.get("seed", DEFAULT_SEED)
    run_name = text.path.stem if seed == seed_of_file else f"{text.path.stem}-seed{seed}"
    if settings.get("output_dir") is None:
        settings["output_dir"] = f"runs/{run_name}"
    settings = {**defaults, **settings}
    settings = {key: schema.as_its_type(key, value) for key, value in settings.items()}
    recipe = Recipe(
        text.path,
        tasks,
        tuple(rewards),
        evaluation,
        settings,
        sagemaker,
        environments,
        text.lines,
        tuple(overrides),
    )
    if problems:
        # Each reward once, without a gate, local, and with one task for all its rows: so far, they can be checked.
        usable = tuple(
            {
                spec.name: replace(spec, gate=None, where=None, applies_to=spec.applies_to if labels else None)
                for spec in rewards
            }.values()
        )
        usable_evaluation = evaluation if evaluation_is_usable else None
        raise RecipeError(problems, replace(recipe, rewards=usable, evaluation=usable_evaluation))
    return recipe


def with_engine(recipe: Recipe, *, vllm: bool) -> Recipe:
    """The recipe with what generates its rollouts, where it says `rollouts: auto`."""
    engine = {"rollouts": "vllm" if vllm else "transformers", "use_vllm": vllm}
    return replace(recipe, settings={**recipe.settings, **engine})


def require_one_task(recipe: Recipe, what: str) -> None:
    """Refuse a recipe with several tasks for something that takes one.

    Raises:
        InputError: of kind "several-tasks".
    """
    if recipe.is_mixture:
        fix = "Use a recipe with task: for each of them."
        labels = ", ".join(task.label for task in recipe.tasks)
        message = f"{what} takes one task, and {recipe.path} has several: {labels}. {fix}"
        raise InputError(message, kind="several-tasks", key="tasks")


def _locate_plugins(content: dict[str, Any], text: RecipeText) -> None:
    """Replace the names of rewards and of the task whose files only the recipe's folders have, by their paths."""

    def replace_name(section: Any, key: str, folder: str = "rewards") -> None:
        if isinstance(section, dict) and isinstance(section.get(key), str):
            name = section[key]
            section[key] = project.locate_plugin(folder, name, text.path)
            text.lines.update(
                {
                    each.replace(name, section[key], 1): line
                    for each, line in text.lines.items()
                    if f"{each}.".startswith(f"{folder}.{name}.")
                }
            )

    tasks = content.get("tasks")
    for entry in [content.get("task"), *(tasks if isinstance(tasks, list) else [])]:
        replace_name(entry, "name", "tasks")
    environments = content.get("environment")
    for entry in environments if isinstance(environments, list) else [environments]:
        replace_name(entry, "name", "environments")
    evaluation = content.get("evaluation")
    replace_name(evaluation, "metric")
    metrics = evaluation.get("metric") if isinstance(evaluation, dict) else None
    for label in metrics if isinstance(metrics, dict) else ():
        replace_name(metrics, label)
    if isinstance(content.get("rewards"), list):
        entries = [{"name": entry} if isinstance(entry, str) else entry for entry in content["rewards"]]
        content["rewards"] = entries
        for entry in entries:
            replace_name(entry, "name")
            replace_name(entry, "gate")


def _read_flat_keys(text: RecipeText) -> dict[str, Any]:
    """The flat keys that are right; the problems of the others go to `text.problems`."""
    settings: dict[str, Any] = {}
    for key, value in text.content.items():
        if key in (*SECTIONS, RESOLVED):
            continue
        at = text.location(key)
        if key in schema.REFUSED or key not in schema.fields():
            known = {*schema.fields(), *SECTIONS, EXTENDS} - schema.REFUSED
            before = list(text.content)[list(text.content).index(key) - 1]
            advice = foreign_keys.usual_names().get(key) or foreign_keys.find_advice(key)
            similar = advice or schema.nearest(key, known)
            if removed := foreign_keys.removed().get(key):
                if " " not in removed or value not in (None, schema.defaults().get(key)):
                    text.problems.append(_foreign_key(at, removed, "removed-key"))
            elif before in SECTIONS and at.line is not None and (key in SECTION_KEYS or not similar):
                fix = f"is not a recipe key. If it belongs to {before}, indent it."
                text.problems.append(at.problem(fix, "unknown-key"))
            elif advice:
                text.problems.append(_foreign_key(at, advice))
            elif section := next((name for name, keys in _KEYS_BY_SECTION.items() if key in keys), None):
                fix = f"is not a recipe key. Did you mean {section}.{key}?"
                text.problems.append(at.problem(fix, "unknown-key", f"{section}.{key}"))
            else:
                text.problems.append(at.unknown(sorted(known), "a recipe key"))
        elif fault := schema.value_fault(key, value):
            text.problems.append(at.problem(fault.text, fault.kind))
        else:
            settings[key] = value
    return settings


def _settle_rollouts(settings: dict[str, Any], text: RecipeText) -> None:
    """Let `rollouts` and TRL's `use_vllm` say the same. The command line wins, then `use_vllm`."""
    keys = ("rollouts", "use_vllm")
    overridden = [key for key in keys if text.is_overridden(key, f"{key}.")]
    if len(overridden) == 1:
        settings.pop(next(key for key in keys if key not in overridden), None)
    engine, use_vllm = (settings.get(key) for key in keys)
    if use_vllm is None:
        if engine == "vllm":
            settings["use_vllm"] = True
        return
    settings["rollouts"] = "vllm" if use_vllm else "transformers"
    if engine not in (None, "auto", settings["rollouts"]):
        fault = f"is {use_vllm}, which contradicts rollouts: {engine}. Remove one of them.".lower()
        text.problems.append(text.location("use_vllm").problem(fault, "conflicting-keys", "rollouts"))


def _read_tasks(content: Mapping[str, Any], text: RecipeText) -> tuple[TaskSpec, ...]:
    """Read the section `task`, or the list `tasks`; empty if one of them is wrong."""
    at = text.location("tasks")
    if content.get("tasks") is None:
        task = read_task(content.get("task"), text.location("task"), text.problems)
        return (task,) if task is not None else ()
    if content.get("task") is not None:
        text.problems.append(at.problem("and task: name the data twice. Keep one of them.", "conflicting-keys"))
    return read_tasks(content["tasks"], at, text.problems)


def _foreign_problems(text: RecipeText, program: foreign_keys.Program) -> list[Problem]:
    """What to do with a configuration of another program, and the successor of each of its keys."""
    path = text.path
    fix = program.instead or f"`python scripts/convert_recipe.py {path} --out NEW.yaml` writes the recipe of it"
    message = f"{path} is a configuration of {program.name}. {fix}. docs/migrate.md maps keys, files and metrics."
    foreign = Problem(message, "foreign-recipe", path=str(path))
    if not program.keys:
        return [foreign]
    if program.instead:
        text.content = dict(flatten(text.content))
    advice = {key: foreign_keys.find_advice(key, program) for key in text.content}
    text.problems += [_foreign_key(text.location(key), words) for key, words in advice.items() if words]
    rest = [key for key, words in advice.items() if not words]
    if program.instead and (unknown := [key for key in rest if key not in schema.fields()]):
        listed = f"{', '.join(unknown[:MAX_LISTED])}{', …' if len(unknown) > MAX_LISTED else ''}"
        text.problems.append(Problem(f"{path}: {len(unknown)} keys have no successor: {listed}.", "foreign-key"))
        rest = [key for key in rest if key in schema.fields()]
    text.content = {key: text.content[key] for key in rest}
    _read_flat_keys(text)
    return [foreign, *sorted(text.problems, key=lambda problem: problem.line or 0)]


def _foreign_key(at: KeyLocation, advice: str, kind: str = "foreign-key") -> Problem:
    ours = advice if " " not in advice else None
    fault = "has another meaning here" if at.key in schema.fields().keys() - schema.REFUSED else "is not a recipe key"
    return at.problem(f"{fault}. {f'Use {ours}' if ours else advice}.", kind, ours)
