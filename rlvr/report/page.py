"""The page of one run."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.artifacts.evaluation_summary import bars, table, verdict
from rlvr.errors import InputError
from rlvr.formatting import count, mapping
from rlvr.health import summary
from rlvr.report import curves, evaluation_extras, samples, svg_charts
from rlvr.report.rollouts import pack, read_rollouts
from rlvr.report.run_facts import facts
from rlvr.report.run_reader import RunRecord, read_run

if TYPE_CHECKING:
    import jinja2

HERE = Path(__file__).parent


def write_report(run_dir: Path, path: Path | None = None) -> Path:
    """Writes the page of a run, by default report.html into its directory, and returns its path.

    Raises:
        InputError: the directory is not there, holds no run, or the page can't be written.
    """
    page = _page(read_run(run_dir))
    return write_page(run_dir / "report.html" if path is None else path, page)


def write_page(path: Path, page: str) -> Path:
    try:
        path.write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"The report {path} can't be written: {error.strerror}.") from error
    return path


@functools.cache
def template(name: str) -> jinja2.Template:
    """A template of this folder, in which everything is escaped but what the filter `drawing` is put on."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # For our own drawings, in which matplotlib has escaped every label, and for nothing else.
    environment.filters["drawing"] = Markup
    environment.filters["count"] = count
    script = Markup((HERE / "script.js").read_text(encoding="utf-8"))
    environment.globals.update(
        style=Markup((HERE / "style.css").read_text(encoding="utf-8")),
        script=script,
        # Nothing is loaded and no script runs but ours, which the browser knows by its hash.
        policy=(
            "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
            f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        ),
    )
    return environment.get_template(name)


def _page(run: RunRecord) -> str:
    accuracies, sources = bars(run.evaluation)
    panels = curves.panels(run)
    changed = samples.changed_answers(run.folder / "completions")
    return template("page.html.jinja").render(
        run=run,
        title=run.name,
        place=str(run.folder),
        subtitle=_subtitle(run.recipe),
        verdict=verdict(run.evaluation),
        health=summary(run.metrics, settings=run.recipe)[1:],
        failure=_failure(run.folder),
        table=table(run.evaluation),
        accuracy_chart=svg_charts.accuracy_chart("accuracy", accuracies) if accuracies else "",
        sources_shown=len(accuracies) - 1,
        sources=sources,
        by_difficulty=_by_difficulty(run),
        warnings=evaluation_extras.warnings(run.evaluation),
        samples=evaluation_extras.samples(run.evaluation),
        sweep=evaluation_extras.sweep(run.shots),
        reward=curves.reward_figure(run),
        reward_panels=curves.reward_panels(run),
        panels=panels,
        not_logged=curves.not_logged(panels),
        always_zero=curves.always_zero(run.metrics),
        facts=facts(run.recipe, run.metrics, run.folder),
        training_answers=samples.training_answers(run.folder / "completions"),
        gained=changed[0] if changed else None,
        lost=changed[1] if changed else None,
        packed=pack(run, read_rollouts(run)),
    )


def _by_difficulty(run: RunRecord) -> str:
    """The accuracies by the column `difficulty` as a figure; nothing where it has one value or none."""
    parts, several = bars(run.evaluation, "difficulty")
    return svg_charts.accuracy_chart("difficulty", parts[1:]) if several > 1 else ""


def _subtitle(recipe: Mapping[str, Any]) -> str:
    model, task = recipe.get("model_name_or_path"), mapping(recipe.get("task")).get("name")
    return f"{model}, trained on {task} with GRPO" if model and task else ""


def _failure(folder: Path) -> tuple[str, str] | None:
    """A sentence on the failure.txt of a run, and its whole text; None where nothing failed."""
    path, log = folder / "failure.txt", folder / "metrics.jsonl"
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
        resumed = log.is_file() and log.stat().st_mtime > path.stat().st_mtime
    except OSError:
        return None
    if not text:
        return None
    what = "The run failed once and went on later" if resumed else "The run failed"
    return f"{what}: {samples.shorten(text.splitlines()[-1], 500)}", text
