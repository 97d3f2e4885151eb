"""The generated pages: README.md's table of measured recipes, and recipes/README.md with all recipes and results."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.artifacts.evaluation_summary import ABSENT
from rlvr.artifacts.origin import was_changed
from rlvr.artifacts.result_record import ResultRecord
from rlvr.config.recipe import load_recipe
from rlvr.console import duration
from rlvr.formatting import count, mapping, percent, points
from rlvr.report.result_table import Result, markdown_table, short_commit

BEGIN = "<!-- python scripts/results.py --readme writes this table -->"
END = "<!-- end of the table -->"
MAX_WORDS = 12  # of a cell
_PAGE = """\
# Recipes

<!-- python scripts/results.py --readme writes this page. Edit the headers of the recipes, or results/. -->

Each recipe describes a run completely. The header of the file says what the recipe trains, how to launch it and what to
expect. The memory of the GPUs is an [estimate](../docs/training.md). "–" means not measured.

{recipes}

## Measured

{measured}

Accuracy is the share of held-out rows with a correct answer. A recipe with several seeds has a value for each seed, and
the interval reaches from the lowest to the highest bound. The training time excludes the evaluations. tokens/s counts
completion tokens per second of training time. "Measured with an earlier recipe" means that keys have changed since.

{details}
{earlier}
## Published by others

Other programs measured these figures, with their own prompts and scorers. The figures can't be compared with each other
or with the figures above.

{published}
"""
_EARLIER = """
## Earlier runs

The files of these runs have changed since they were recorded, so the runs are not in the table. Each page says why.

{runs}
"""


@dataclass(frozen=True)
class Measured:
    """The records of a recipe that differ only in their seeds, and whether the recipe has changed since."""

    records: Sequence[ResultRecord]
    changed: bool

    @property
    def recipe(self) -> str:
        return self.records[0].recipe


def pages(root: Path, results: Iterable[Result]) -> dict[str, str]:
    """The generated pages by their path in the project.

    Args:
        root: of the project.
        results: of results/.
    """
    groups: dict[tuple[str, ...], list[ResultRecord]] = defaultdict(list)
    for record in (result.record for result in results):
        if len(record.measured.scores) == 2:
            groups[record.recipe, record.recipe_digest, str(record.recipe_file_digest)].append(record)
    runs = [
        Measured(records, was_changed(records[0], root / "recipes" / f"{recipe}.yaml"))
        for (recipe, *_), records in sorted(groups.items())
    ]
    before, _, rest = (root / "README.md").read_text(encoding="utf-8").partition(BEGIN)
    readme = f"{before}{BEGIN}\n{_measured_table(root, runs)}\n{END}{rest.partition(END)[2]}"
    return {"README.md": readme, "recipes/README.md": _recipes_page(root, runs)}


def _measured_table(root: Path, runs: Sequence[Measured]) -> str:
    columns = ["recipe", "model", "task", "before → after", "training time", "hardware"]
    return markdown_table(
        columns,
        [
            [
                f"[{run.recipe}](recipes/{run.recipe}.yaml)",
                _last(run.records[0].model),
                _task(run.records[0]),
                _accuracies(run),
                _range(_seconds(run), duration),
                _hardware(run),
            ]
            for run in runs
        ],
    )


def _recipes_page(root: Path, runs: Sequence[Measured]) -> str:
    recipes = [
        _recipe_row(root, path, [run for run in runs if run.recipe == path.stem])
        for path in sorted((root / "recipes").glob("*.yaml"))
    ]
    lines = (root / "results" / "published.jsonl").read_text(encoding="utf-8").splitlines()
    published = [json.loads(line) for line in lines]
    earlier = [_earlier_run(page) for page in sorted((root / "results").glob("*/README.md"))]
    return _PAGE.format(
        recipes=markdown_table(["recipe", "model", "task", "trains", "hardware", "accuracy"], recipes),
        measured=markdown_table(
            [
                *("recipe", "model", "task", "accuracy", "gain (95 % interval)", "updates × completions"),
                *("training time", "tokens/s", "hardware", "date"),
            ],
            [_result_row(run) for run in runs],
        ),
        details="\n".join(map(_details, runs)),
        earlier=_EARLIER.format(runs="\n".join(earlier)) if earlier else "",
        published=markdown_table(
            ["recipe", "accuracy", "of what", "source"],
            [[_link(one["recipe"]), one["accuracy"], one["what"], one["source"]] for one in published],
        ),
    )


def _recipe_row(root: Path, path: Path, runs: Sequence[Measured]) -> list[str]:
    recipe, text = load_recipe(path), path.read_text(encoding="utf-8")
    model = _last(str(recipe.settings["model_name_or_path"]))
    trains = _header(text, "Trains").replace(f" of {model}", "").replace(f"models/{model}", model)
    hardware = re.split(r"[;.] ", _header(text, "Hardware"))[0]
    accuracy = "; ".join(_accuracies(run) for run in runs)
    return [
        _link(path.stem),
        model,
        " + ".join(_last(task.name) for task in recipe.tasks),
        _shortened(trains),
        _shortened(hardware),
        accuracy or ABSENT,
    ]


def _header(recipe: str, name: str) -> str:
    """A line of a recipe's header, with the lines that continue it."""
    found = re.search(rf"(?m)^#   {name} +(.+(?:\n# {{5,}}\S.*)*)", recipe)
    return " ".join(found[1].replace("\n#", " ").split()) if found else ABSENT


def _shortened(text: str) -> str:
    """As many clauses as fit a cell; of a first clause that doesn't fit, its first words."""
    words = text.split()
    if len(words) <= MAX_WORDS:
        return text
    clauses = [" ".join(words[:end]) for end in range(1, MAX_WORDS + 1) if words[end - 1][-1] in ",;."]
    whole = [clause[:-1] for clause in clauses if clause.count("(") == clause.count(")")]
    return whole[-1] if whole else f"{' '.join(words[: MAX_WORDS - 1])} …"


def _result_row(run: Measured) -> list[str]:
    first = run.records[0]
    speeds = [speed for record in run.records if (speed := record.tokens_per_second) is not None]
    sizes = dict.fromkeys((record.steps, record.completions_per_update) for record in run.records)
    return [
        _link(first.recipe),
        _last(first.model),
        _task(first),
        _accuracies(run),
        _gain(run),
        "; ".join(f"{steps:,}{f' × {each}' if each else ''}" for steps, each in sizes),
        _range(_seconds(run), duration),
        _range(speeds, "{:,.0f}".format),
        _hardware(run),
        _range([str(record.times["finished"])[:10] for record in run.records], str),
    ]


def _details(run: Measured) -> str:
    """What a row of results has no room for."""
    first, evaluation = run.records[0], run.records[0].measured
    name = f"{run.recipe}, seed{'s' if len(run.records) > 1 else ''}"
    seeds = ", ".join(str(record.seeds["seed"]) for record in run.records)
    rows = max(score.measured for score in evaluation.scores.values())
    how = f"{evaluation.metric} on {count(rows, 'row')} of {evaluation.split}, {evaluation.decoding}"
    processes = f", {first.processes} processes ({first.launcher})" if first.processes > 1 else ""
    command = f"`{first.command}`" if first.command else "Command not recorded"
    commits = ", ".join(dict.fromkeys(short_commit(record.commit) or "not recorded" for record in run.records))
    versions = ", ".join(f"{library} {version}" for library, version in first.versions.items())
    return f"- {name} {seeds}: {how}{processes}. {command}. Commit {commits}. Versions: {versions}."


def _earlier_run(page: Path) -> str:
    """A link to the page of a run, with the title and the first paragraph of the page."""
    title, summary, *_ = page.read_text(encoding="utf-8").split("\n\n")
    return f"- [{title.removeprefix('# ')}](../results/{page.parent.name}/README.md): {' '.join(summary.split())}"


def _accuracies(run: Measured) -> str:
    """Accuracies as "24.4 → 99.6, 100.0 %", a value for each seed, and whether the recipe has changed since."""
    overall = [record.measured.overall for record in run.records]
    base, trained = (
        [percent(score.accuracy)[:-2] for score in scores if score is not None]
        for scores in ([one.base for one in overall], [one.trained for one in overall])
    )
    before = ", ".join(base if len(set(base)) > 1 else base[:1])
    return f"{before} → {', '.join(trained)} %{' (measured with an earlier recipe)' if run.changed else ''}"


def _gain(run: Measured) -> str:
    evaluations = [record.measured for record in run.records]
    if any(score.is_often_unscored for one in evaluations for score in one.scores.values()):
        return "not comparable"
    gains = [gain for one in evaluations if (gain := one.overall.difference) is not None]
    low, high = min(gain.interval.low for gain in gains), max(gain.interval.high for gain in gains)
    return f"{', '.join(points(gain.points) for gain in gains)} ({points(low)} … {points(high)})"


def _range(values: Sequence[Any], form: Callable[[Any], str]) -> str:
    """The least and the greatest value, or the one that all have."""
    return " to ".join(dict.fromkeys(form(value) for value in (min(values), max(values)))) if values else ABSENT


def _seconds(run: Measured) -> list[float]:
    return [3600 * record.times["training_hours"] for record in run.records]


def _hardware(run: Measured) -> str:
    names = (record.hardware.get("gpu", "none") for record in run.records)
    cpus = (record.hardware.get("cpu", ABSENT) for record in run.records)
    return "; ".join(dict.fromkeys(cpu if gpu == "none" else gpu for cpu, gpu in zip(cpus, names, strict=True)))


def _task(record: ResultRecord) -> str:
    parts = mapping(record.task.get("tasks")).values()
    return " + ".join(str(part["name"]) for part in parts) or str(record.task["name"])


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


def _link(recipe: str) -> str:
    return f"[{recipe}]({recipe}.yaml)"
