"""Measure the report of a long run: seconds to write, megabytes, and seconds until the first paint.

    python -m benchmarks.report                      # 1,000 steps, 50,000 completions of about 1,200 characters
    python -m benchmarks.report --steps 200 --keep /tmp/run

Limits: 20 s, 20 MB, first paint 2 s. The texts consist of 4,000 random words, which compress worse than model output.
scripts/report.py writes the page in another process; its start and imports count. First paint is Chromium's paint
timing, the median of five loads; it is omitted without Chromium.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]

RECIPE = """\
model_name_or_path: models/made-up
use_peft: true
max_steps: {steps}
num_generations: 10
max_completion_length: 512
task:
  name: gsm8k
rewards:
- name: math_correctness
  weight: 1.0
- name: answer_format
  weight: 0.2
"""
PROMPTS = 2000  # so that every prompt comes up several times in a long run
GROUP = 10


def write_run(folder: Path, *, steps: int, completions: int, characters: int) -> None:
    """A run directory with `completions` completions, in groups of ten, spread evenly over the steps."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(4000)]
    text = " ".join(draw.choices(words, k=400_000))
    (folder / "completions").mkdir(parents=True)
    (folder / "recipe.yaml").write_text(RECIPE.format(steps=steps), encoding="utf-8")
    (folder / "run.json").write_text(json.dumps({"status": "done"}), encoding="utf-8")
    lines = []
    for step in range(1, steps + 1):
        rows: list[dict[str, Any]] = []
        for place in range(completions // steps):
            prompt = (step * 7 + place // GROUP) % PROMPTS
            right = draw.random() < step / steps
            start = draw.randrange(len(text) - 2 * characters)
            body = text[start : start + draw.randint(characters // 2, characters * 3 // 2)]
            rows.append(
                {
                    "step": step,
                    "prompt": [{"role": "user", "content": f"{prompt}: {text[prompt * 50 : prompt * 50 + 250]}"}],
                    "completion": [{"role": "assistant", "content": f"{body}\n#### The final answer is {prompt}"}],
                    "math_correctness": float(right),
                    "answer_format": 1.0,
                    "final_answer": str(prompt if right else prompt + 1),
                    "advantage": float(right) - 0.5,
                }
            )
        pq.write_table(pa.Table.from_pylist(rows), folder / "completions" / f"completions_{step:05d}.parquet")
        mean = sum(row["math_correctness"] for row in rows) / max(len(rows), 1)
        lines.append(
            {
                "step": step,
                "time": 1_795_000_000 + step,
                "reward": mean + 0.2,
                "reward/min": 0.2,
                "reward/max": 1.2,
                "rewards/math_correctness/mean": mean,
                "rewards/math_correctness/min": 0.0,
                "rewards/math_correctness/max": 1.0,
                "rewards/answer_format/mean": 1.0,
                "rewards/answer_format/min": 1.0,
                "rewards/answer_format/max": 1.0,
                "completions/mean_length": 300 + draw.random() * 50,
                "completions/min_length": 120.0,
                "completions/max_length": 500.0,
                "completions/clipped_ratio": 0.02 * draw.random(),
                "entropy": 0.5 * (1 - step / (2 * steps)) + 0.02 * draw.random(),
                "frac_reward_zero_std": 0.4 * draw.random(),
                "grad_norm": 0.1 + 0.05 * draw.random(),
                "kl": 0.02 * step / steps,
                "policy_kl": 0.001 * draw.random(),
                "clip_ratio/region_mean": 0.004 * draw.random(),
                "step_time": 12 + draw.random(),
                "time/generation": 8.0,
                "time/rewards": 0.5,
                "time/update": 3.4,
            }
        )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def first_paint(page: Path, loads: int = 5) -> tuple[float, float] | None:
    """Seconds until something is painted, and until the completions can be browsed; None without a browser."""
    from tests.support.chromium import CHROMIUM, tab

    if CHROMIUM is None:
        return None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, tab(Path(folder)) as driven:
        paints, ready = [], []
        for _ in range(loads):
            driven.open(page)
            paint = "performance.getEntriesByName('first-contentful-paint')"
            assert driven.wait_for(f"{paint}.length === 1")
            paints.append(driven.evaluate(f"{paint}[0].startTime") / 1000)
            ready.append(driven.evaluate("performance.getEntriesByName('browsable')[0].startTime") / 1000)
    return statistics.median(paints), statistics.median(ready)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--completions", type=int, default=50_000)
    parser.add_argument("--characters", type=int, default=1200, help="of a completion, on average")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the run here, and leave it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch) / "run"
        if not (folder / "metrics.jsonl").is_file():
            write_run(folder, steps=options.steps, completions=options.completions, characters=options.characters)
        start = time.perf_counter()
        subprocess.run([sys.executable, PROJECT / "scripts" / "report.py", folder], check=True, capture_output=True)
        took = time.perf_counter() - start
        page = folder / "report.html"
        print(
            f"{options.steps:,} steps, {options.completions:,} completions of {options.characters:,} characters or so"
        )
        print(f"  made in           {took:6.1f} s    (asked: under 20)")
        print(f"  size              {page.stat().st_size / 1e6:6.1f} MB   (asked: under 20)")
        painted = first_paint(page)
        if painted is None:
            print("  no Chromium here, so the first paint was not measured")
        else:
            print(f"  first paint       {painted[0]:6.2f} s    (asked: under 2)")
            print(f"  can be browsed    {painted[1]:6.2f} s")


if __name__ == "__main__":
    main()
