"""Made run directories, and pages taken apart, for the tests of the report."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rlvr.artifacts.directory import write_status
from rlvr.artifacts.result_record import record_run
from rlvr.config.recipe import load_recipe
from rlvr.config.recipe_writer import resolved_text
from rlvr.evaluation.evaluation_file import write_evaluation
from rlvr.evaluation.scores import summarise
from tests.conftest import REPOSITORY

HOSTILE = (
    "</pre></svg><script>alert('x')</script><img src=https://example.org/x.png onerror=alert(1)> {{ 7 * 7 }} $x_1$"
)

# Two turns, a long result and a call without a result, with HOSTILE in every text that a model or a tool writes.
CONVERSATION = [
    {
        "role": "assistant",
        "content": f"Let me try. {HOSTILE}",
        "tool_calls": [
            {"type": "function", "function": {"name": "run", "arguments": json.dumps({"code": f"x\n{HOSTILE}"})}},
            {"type": "function", "function": {"name": HOSTILE, "arguments": HOSTILE}},
        ],
    },
    {"role": "tool", "name": "run", "content": f"{HOSTILE} {'long ' * 3000}"},
    {"role": "tool", "name": HOSTILE, "content": str({"error": f"Tool {HOSTILE} not found."})},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "run", "arguments": '{"code": "1"}'}}],
    },
]
TOOL_COLUMNS = {"stopped": "iterations", "tool_seconds": "[0.25, null]"}

RECIPE = """\
# demo.yaml as it ran: overrides and defaults included.
model_name_or_path: models/tiny
use_peft: true
load_in_4bit: true
lora_r: 16
num_generations: 8
temperature: 0.9
learning_rate: 0.001
max_steps: 4
max_completion_length: 44
hub_token: hf_verysecret
model_init_kwargs:
  token: hf_verysecret
task:
  name: arithmetic
  shots: 2
rewards:
- name: math_correctness
  weight: 1.0
- name: answer_format
  weight: 0.2
  gate: math_correctness
resolved:
  lora: {target_modules: [q_proj, v_proj]}
"""


def record(row: int, correct: bool | None, *, text: str = "", source: str = "addition") -> dict[str, Any]:
    return {
        "row": row,
        "prompt": [{"role": "user", "content": f"question {row} {text}"}],
        "completion": f"answer {row} {text}",
        "tokens": 10,
        "ended": True,
        "correct": correct,
        "rewards/math_correctness": None if correct is None else float(correct),
        "source": source,
        "final_answer": f"{row} {text}",
    }


def write_run(
    folder: Path, *, base: list[bool | None], trained: list[bool | None], text: str = "", steps: int = 4
) -> Path:
    """A run directory as run_grpo.py leaves it, with `text` in every place that a model or a data set can reach."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    lines: list[dict[str, Any]] = [
        {
            "step": step,
            "time": 1_795_000_000 + step,
            "reward": 0.1 * step,
            "reward/min": 0.0,
            "reward/max": 0.3 * step,
            "rewards/math_correctness/mean": 0.09 * step,
            "rewards/math_correctness/min": 0.0,
            "rewards/math_correctness/max": 0.2 * step,
            "rewards/answer_format/mean": 0.05,
            "completions/mean_length": 30.0 + step,
            "completions/clipped_ratio": 0.0,
            "entropy": 0.5 / step,
            "frac_reward_zero_std": 0.25,
            "grad_norm": 0.1,
            "step_time": 2.0,
            "time/generation": 1.2,
            "time/rewards": 0.1,
            "time/update": 0.6,
            "kl": 0.0,
        }
        for step in range(1, steps + 1)
    ]
    machine = {"cpu": f"a CPU, 2 cores {text}", "gpu": f"2 x a GPU {text}"}
    write_status(folder, "done", machine=machine, identity={"processes": 2, "launcher": "zero3"})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    results = {}
    for name, rights in (("base", base), ("trained", trained)):
        sources = [f"addition {text}", f"subtraction {text}"]
        records = [record(row, right, text=text, source=sources[row % 2]) for row, right in enumerate(rights)]
        results[name] = (summarise(records, ["math_correctness"]), records)
    about = {"task": {"name": "arithmetic"}, "split": "test", "metric": "math_correctness", "decoding": "greedy"}
    write_evaluation(folder, about, results)
    for step in (1, steps):
        rows = [
            {
                "step": step,
                "prompt": [{"role": "user", "content": f"prompt of step {step} {text}"}],
                "completion": [{"role": "assistant", "content": f"completion {number} of step {step} {text}"}],
                "math_correctness": float(number == 2),
                "advantage": float(number == 2) - 0.3,
            }
            for number in range(4)
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / "completions" / f"completions_{step:05d}.parquet")
    return folder


@dataclass
class Page(HTMLParser):
    """The elements, attributes and text of a page."""

    tags: set[str] = field(default_factory=set)
    attributes: list[tuple[str, str]] = field(default_factory=list)
    text: str = ""
    scripts: list[tuple[dict[str, str], str]] = field(default_factory=list)  # the attributes and content of each
    inside: str = ""

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.inside = tag
        if tag == "script":
            self.scripts.append(({name: value or "" for name, value in attrs}, ""))

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            attributes, content = self.scripts[-1]
            self.scripts[-1] = (attributes, content + data)
        elif self.inside != "style":
            self.text += data


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def carried(path: Path) -> dict[str, Any]:
    """The completions that a page carries, unpacked."""
    packed = next(content for attributes, content in read(path).scripts if attributes.get("id") == "completions")
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def write_recorded_run(folder: Path, *words: str, trained: int = 40, text: str = "") -> Path:
    """A recorded run of the demo with 40 held-out rows; the trained model got the last `trained` right."""
    write_run(folder, base=[False, True] * 20, trained=[row >= 40 - trained for row in range(40)], text=text)
    recipe = load_recipe(REPOSITORY / "recipes" / "demo-arithmetic.yaml", ["--output_dir", str(folder), *words])
    (folder / "recipe.yaml").write_text(resolved_text(recipe), encoding="utf-8")
    (folder / "versions.json").write_text('{"python": "3.11", "trl": "1.16.0", "g++": "/opt/g++"}')
    for name in ("adapter_model.safetensors", "adapter_config.json", "README.md", "training_args.bin"):
        (folder / "adapter").mkdir(exist_ok=True)
        (folder / "adapter" / name).write_text(name)
    record_run(folder, recipe)
    return folder
