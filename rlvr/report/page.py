"""Write the page of one run."""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path

import jinja2
from markupsafe import Markup

from rlvr.artifacts.evaluation_summary import bars, pass_at_k_table, table, verdict
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.errors import writing
from rlvr.formatting import count, shorten
from rlvr.health import summary
from rlvr.report import curves, samples, svg_charts
from rlvr.report.packing import pack
from rlvr.report.rollouts import read_rollouts
from rlvr.report.run_facts import facts
from rlvr.report.run_reader import RunRecord, read_run

OTHER_FILE = "Choose another file with --out"
HERE = Path(__file__).parent


def write_report(run_dir: Path, path: Path | None = None) -> Path:
    """Write the page of a run, by default as report.html in its directory; return its path.

    Raises:
        InputError: of kind "not-a-run", "run-in-use" or "unwritable".
    """
    path = path or run_dir / "report.html"
    refuse_if_in_use(path.parent, OTHER_FILE)
    return write_page(path, _page(read_run(run_dir)))


def write_page(path: Path, page: str) -> Path:
    with writing(path, f"{OTHER_FILE}."):
        path.write_text(page, encoding="utf-8", errors="replace")
    return path


@functools.cache
def template(name: str) -> jinja2.Template:
    """Load a template of this folder. It escapes everything except values with the filter `drawing`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Only for our own drawings: matplotlib has escaped every label in them.
    environment.filters["drawing"] = Markup
    environment.filters["count"] = count
    script = Markup((HERE / "script.js").read_text(encoding="utf-8"))
    environment.globals.update(
        style=Markup((HERE / "style.css").read_text(encoding="utf-8")),
        script=script,
        # The browser loads nothing and runs only the script with this hash.
        policy=(
            "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
            f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        ),
    )
    return environment.get_template(name)


def _page(run: RunRecord) -> str:
    part = "task" if run.evaluation.tasks else "source"
    accuracies, sources = bars(run.evaluation, part)
    difficulties, levels = bars(run.evaluation, "difficulty")
    model = run.recipe.get("model_name_or_path")
    rollouts = read_rollouts(run)
    not_logged, always_zero = curves.not_drawn(run)
    return template("page.html.jinja").render(
        run=run,
        title=run.name,
        folder=str(run.folder),
        subtitle=f"{model}, trained on {run.task_name} with GRPO" if model and run.task_name else "",
        verdict=verdict(run.evaluation),
        health=summary(run.metrics, settings=run.recipe)[1:],
        failure=_failure(run.folder),
        table=table(run.evaluation),
        accuracy_chart=svg_charts.accuracy_chart("accuracy", accuracies) if accuracies else "",
        sources_shown=len(accuracies) - 1,
        sources=sources,
        part=part,
        by_difficulty=svg_charts.accuracy_chart("difficulty", difficulties[1:]) if levels > 1 else "",
        warnings=run.evaluation.warnings,
        pass_at_k=pass_at_k_table(run.evaluation),
        reward=curves.reward_panel(run),
        reward_panels=curves.reward_panels(run),
        panels=curves.metric_panels(run),
        not_logged=not_logged,
        always_zero=always_zero,
        facts=facts(run),
        changed=samples.changed_answers(rollouts.items),
        rollouts=rollouts,
        packed=pack(run, rollouts),
    )


def _failure(folder: Path) -> tuple[str, str] | None:
    """A sentence on failure.txt and its whole text; None without a failure."""
    path, log = folder / "failure.txt", folder / "metrics.jsonl"
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
        resumed = log.is_file() and log.stat().st_mtime > path.stat().st_mtime
    except OSError:
        return None
    if not text:
        return None
    event = "The run failed once and was resumed" if resumed else "The run failed"
    return f"{event}: {shorten(text.splitlines()[-1], 500)}", text
