"""Train the bundled models with each algorithm of docs/algorithms.md, and draw accuracy by generated completions.

    python -m benchmarks.algorithms                # measure what results/algorithms.jsonl lacks; it can be stopped
    python -m benchmarks.algorithms --plot         # docs/images/algorithms.svg, and the table of docs/benchmarks.md

Each run is run_grpo.py with a demo recipe, `Run.settings` and the keys of a variant, in a process that is forked after
the imports. It differs from the command in one point: no report is written. The plot and the table have the variants of
which all runs are measured.

Each generated batch is used for four updates, as in the papers. After the first update the policy is no longer the one
that generated: only then do clipping and importance sampling act.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise
from math import isfinite
from multiprocessing.connection import wait
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
RESULTS = PROJECT / "results" / "algorithms.jsonl"
RUNS = PROJECT / "runs" / "algorithms"  # folders and logs of runs
IMAGE = PROJECT / "docs" / "images" / "algorithms.svg"
PAGE = PROJECT / "docs" / "benchmarks.md"
SEEDS = 5
TARGET = 0.8  # accuracy
COLUMNS = 4  # of the plot
UPDATES = 4  # a generation
GROUP = 8  # completions a prompt, in both recipes
VALIDATION_ROWS = 128

# The keys of each algorithm beside its recipe's, as in the table of docs/algorithms.md.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "GRPO": {"loss_type": "grpo"},
    "BNPO": {"loss_type": "bnpo"},
    "Dr. GRPO": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "DAPO": {"loss_type": "dapo", "epsilon_high": 0.28, "mask_truncated_completions": True},
    "GSPO": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
    "CISPO": {"loss_type": "cispo", "epsilon_high": 5.0},
    "SAPO": {"loss_type": "sapo", "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05},
    "GDPO": {"loss_type": "grpo", "multi_objective_aggregation": "normalize_then_sum"},
    "KL penalty": {"loss_type": "grpo", "beta": 0.04},
    "Dynamic sampling": {"loss_type": "grpo", "dynamic_sampling": 3},
    "Batch scaling": {"loss_type": "grpo", "scale_rewards": "batch"},
    "Adaptive scaling": {"loss_type": "grpo", "scale_rewards": "adaptive"},
    "LUSPO": {"loss_type": "luspo", "importance_sampling_level": "sequence", "epsilon": 2e-3, "epsilon_high": 2.5e-3},
    "VESPO": {"loss_type": "vespo"},
}


@dataclass(frozen=True)
class Budget:
    """What the runs of a recipe have in common.

    Attributes:
        completions: of one generation, as in the recipe.
        learning_rate: lower than the recipe's, which makes one update a generation. Chosen with GRPO.
    """

    completions: int
    generations: int
    learning_rate: float


BUDGETS = {
    "demo-arithmetic": Budget(64, 10, 5e-4),
    "demo-programs": Budget(128, 10, 1e-3),
}


@dataclass(frozen=True)
class Run:
    recipe: str
    variant: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.recipe}-{self.variant.lower().replace('. ', '-').replace(' ', '-')}-{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """Keys and values beside those of the recipe."""
        budget = BUDGETS[self.recipe]
        return {
            "per_device_train_batch_size": budget.completions // UPDATES,
            "steps_per_generation": UPDATES,
            "max_steps": budget.generations * UPDATES,
            "learning_rate": budget.learning_rate,
            "task.validation_rows": VALIDATION_ROWS,
            "eval_strategy": "steps",
            "eval_steps": 2 * UPDATES,
            "evaluation": None,
            "report_to": "none",
            **VARIANTS[self.variant],
            "seed": self.seed,
        }

    def words(self) -> list[str]:
        """The arguments of run_grpo.py."""
        pairs = [(f"--{key}", json.dumps(value).strip('"')) for key, value in self.settings.items()]
        return ["--config", f"recipes/{self.recipe}.yaml", *(word for pair in pairs for word in pair)]

    def digest(self) -> str:
        """Of all that its numbers depend on: the recipe in force, the base model and the versions of libraries."""
        from rlvr.artifacts.directory import content_digest, versions
        from rlvr.config.recipe import load_recipe
        from rlvr.modeling import adapters

        recipe = load_recipe(Path(self.words()[1]), self.words()[2:])
        base = adapters.fingerprint(Path(str(recipe.settings["model_name_or_path"])))
        return content_digest([{**recipe.as_dict(), "output_dir": None}, base, versions()])[:16]


# ----------------------------------------------------------------------------------------------------------------------
# Measuring


def read_results() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.is_file() else []


def measure(runs: Sequence[Run], folder: Path, jobs: int) -> None:
    """Train those runs that have no result yet, in child processes, and append a line for each."""
    os.chdir(PROJECT)
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: runs are parallel instead
    from rlvr import console

    console.silence_libraries()
    import matplotlib.figure  # noqa: F401  (imported here, so that no child does)

    from rlvr.preflight import prepare  # noqa: F401
    from rlvr.training import train  # noqa: F401

    done = {result["digest"] for result in read_results()}
    waiting = [(run, digest) for run in runs if (digest := run.digest()) not in done]
    print(f"{len(runs) - len(waiting)} of {len(runs)} runs are measured already.", flush=True)
    running: dict[Any, tuple[Any, Run, str]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            run, digest = waiting.pop(0)
            process = multiprocessing.get_context("fork").Process(target=train_run, args=(run, folder / run.name))
            process.start()
            running[process.sentinel] = process, run, digest
        for sentinel in wait(list(running)):
            process, run, digest = running.pop(sentinel)
            process.join()
            if process.exitcode != 0:
                raise SystemExit(f"{run.name} failed with exit code {process.exitcode}: see {folder / run.name}.log.")
            result = {**result_of(run, folder / run.name), "digest": digest}
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result, ensure_ascii=False) + "\n")
            shutil.rmtree(folder / run.name)
            accuracies = " ".join(f"{100 * accuracy:.0f}" for accuracy in result["accuracy"])
            print(f"{time.strftime('%H:%M:%S')} {run.name:<40} {accuracies} %  ({len(waiting)} wait)", flush=True)


def train_run(run: Run, folder: Path) -> None:
    """What `run_grpo.py` does, without its report. The body of a child process."""
    shutil.rmtree(folder, ignore_errors=True)
    with folder.with_suffix(".log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    import run_grpo
    from rlvr.run import Stages

    Stages.report = lambda self: None  # type: ignore[method-assign]
    sys.exit(run_grpo.main([*run.words(), "--output_dir", str(folder)]))


def result_of(run: Run, folder: Path) -> dict[str, Any]:
    """The line of a finished run: what was trained, and the accuracy after so many generated completions."""
    from rlvr.artifacts.directory import versions
    from rlvr.artifacts.metrics import read_metrics

    generated, completions, accuracy = 0, [], []
    for line in read_metrics(folder / "metrics.jsonl"):
        if "eval_accuracy" in line:
            completions.append(generated)
            accuracy.append(line["eval_accuracy"])
        elif "num_tokens" in line:  # the first update of a generation
            generated += generated_completions(line, BUDGETS[run.recipe].completions)
    settings = run.settings
    del settings["report_to"], settings["evaluation"], settings["seed"]
    return {
        "recipe": run.recipe,
        "variant": run.variant,
        "seed": run.seed,
        "completions": completions,
        "accuracy": accuracy,
        "settings": settings,
        "versions": versions(),
    }


def generated_completions(line: Mapping[str, float], batch: int) -> int:
    """The completions of a generation, with those that dynamic sampling discarded."""
    kept = line.get("dynamic_sampling/kept_fraction", 1.0)
    if kept == 0:  # no round had signal; the later ones may have been smaller than this
        return round(batch * line["dynamic_sampling/rounds"])
    return round((batch - GROUP * line.get("dynamic_sampling/unfilled_groups", 0.0)) / kept)


# ----------------------------------------------------------------------------------------------------------------------
# Reporting


def mean_and_margin(values: Sequence[float]) -> tuple[float, float]:
    """The mean over seeds, and half the width of its 95 % interval (Student's t)."""
    from scipy.stats import t

    return fmean(values), float(t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5


def completions_to(target: float, result: Mapping[str, Any]) -> float:
    """How many completions were generated until the accuracy reached the target, between validations by a line."""
    points = list(zip(result["completions"], result["accuracy"], strict=True))
    if points[0][1] >= target:
        return float(points[0][0])
    for (before, low), (after, high) in pairwise(points):
        if high >= target:
            return float(before + (after - before) * (target - low) / (high - low))
    return float("inf")


def by_variant(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[Mapping[str, Any]]]]:
    """The results of each recipe by seed, for variants of which all runs are measured."""
    measured = {(result["recipe"], result["variant"], result["seed"]): result for result in results}
    return {
        name: {recipe: [measured[recipe, name, seed] for seed in range(SEEDS)] for recipe in BUDGETS}
        for name in VARIANTS
        if all((recipe, name, seed) in measured for recipe in BUDGETS for seed in range(SEEDS))
    }


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The measured table of docs/benchmarks.md."""
    groups = by_variant(results)
    parts = ("accuracy, %", f"completions to {100 * TARGET:.0f} %")
    head = ["algorithm", *(f"{recipe}: {part}" for recipe in BUDGETS for part in parts)]
    lines = [head, ["---"] * len(head)]
    for name, by_recipe in groups.items():
        cells = [cell for recipe, group in by_recipe.items() for cell in figures(name, group, groups["GRPO"][recipe])]
        lines.append([name, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figures(variant: str, group: Sequence[Mapping[str, Any]], grpo: Sequence[Mapping[str, Any]]) -> list[str]:
    """The accuracy after the last update, and the completions to the target: GRPO's, or how many more than GRPO's."""
    mean, margin = mean_and_margin([100 * result["accuracy"][-1] for result in group])
    accuracy = f"{mean:.1f} ± {margin:.1f}"
    needed = [completions_to(TARGET, result) for result in group]
    differences = [own - completions_to(TARGET, other) for own, other in zip(needed, grpo, strict=True)]
    if variant == "GRPO" or not all(map(isfinite, differences)):
        middle, most = median(needed), max(result["completions"][-1] for result in group)
        return [accuracy, f"{middle:.0f}" if isfinite(middle) else f"> {most}"]
    mean, margin = mean_and_margin(differences)
    return [accuracy, f"{round(mean):+d} ± {margin:.0f}".replace("-", "−")]


def renew(page: str, results: Sequence[Mapping[str, Any]]) -> str:
    """The page with the measured table in place of its own."""
    return re.sub(r"(?s)\| algorithm \| demo-.*?(?=\n\n)", lambda match: table(results), page)


def curve(group: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float], list[float], list[float]]:
    """Generated completions, mean accuracy in percent, and the ends of its interval, at each validation."""
    completions = [fmean(point) for point in zip(*(result["completions"] for result in group), strict=True)]
    points = [mean_and_margin(point) for point in zip(*(result["accuracy"] for result in group), strict=True)]
    low = [100 * max(0.0, mean - margin) for mean, margin in points]
    high = [100 * min(1.0, mean + margin) for mean, margin in points]
    return completions, [100 * mean for mean, _ in points], low, high


def draw(results: Sequence[Mapping[str, Any]]) -> str:
    """An SVG file with a panel for each variant: the mean over seeds with its interval, and GRPO's for comparison."""
    import matplotlib
    from matplotlib.figure import Figure

    colours = dict(zip(BUDGETS, ("#2f6fde", "#d9822b"), strict=True))
    groups = by_variant(results)
    rows = -(-len(groups) // COLUMNS)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "algorithms", "font.size": 9}):
        figure = Figure(figsize=(10, 0.5 + 1.9 * rows), layout="constrained")
        panels = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False).flat
        for panel, (name, by_recipe) in zip(panels, groups.items(), strict=False):
            for recipe, colour in colours.items():
                completions, mean, _, _ = curve(groups["GRPO"][recipe])
                panel.plot(completions, mean, color="#8a94a3", linewidth=1, linestyle="--")
                completions, mean, low, high = curve(by_recipe[recipe])
                panel.fill_between(completions, low, high, color=colour, alpha=0.2, linewidth=0)
                panel.plot(completions, mean, color=colour, marker="o", markersize=3, label=recipe)
            panel.set_title(name, loc="left", fontsize=10)
            panel.grid(axis="y", alpha=0.3)
            panel.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylim(0, 103)
        panels[0].legend(frameon=False, loc="lower right", fontsize=8)
        for panel in panels[len(groups) :]:
            panel.set_visible(False)
        figure.supxlabel("generated completions", fontsize=9)
        figure.supylabel("validation accuracy, %", fontsize=9)
        buffer = StringIO()
        figure.savefig(buffer, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
    return re.sub(r"[ \t]+$", "", buffer.getvalue(), flags=re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, one thread each")
    parser.add_argument("--plot", action="store_true", help="write the plot and the table, train nothing")
    options = parser.parse_args()
    if options.plot:
        results = read_results()
        IMAGE.write_text(draw(results), encoding="utf-8")
        PAGE.write_text(renew(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
        print(table(results))
        return
    RUNS.mkdir(parents=True, exist_ok=True)
    runs = [Run(recipe, variant, seed) for recipe in BUDGETS for seed in range(SEEDS) for variant in VARIANTS]
    measure(runs, RUNS, options.jobs)


if __name__ == "__main__":
    main()
