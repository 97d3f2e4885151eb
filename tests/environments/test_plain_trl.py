"""The shipped environments are TRL's: its own trainer plays them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from environments.calculator import Calculator
from environments.code_repair import CodeRepair
from environments.python_sandbox import PythonSandbox
from environments.retrieval import Retrieval
from environments.sqlite import Sqlite

MODEL = Path(__file__).resolve().parents[2] / "models" / "tiny-tools"


@pytest.mark.slow
def test_trls_trainer_plays_environments_and_takes_their_rewards(tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    def by_length(completions: list[Any], **kwargs: Any) -> list[float]:
        return [len(str(completion)) / 1000 for completion in completions]

    (tmp_path / "books.txt").write_text("There are 47 shelves.\n")
    with closing(sqlite3.connect(tmp_path / "books.db")) as connection:
        connection.execute("CREATE TABLE shelves (books INT)")
    factories = {
        "calculator": Calculator,
        "python_sandbox": PythonSandbox,
        "code_repair": CodeRepair,
        "sqlite": partial(Sqlite, folder=str(tmp_path)),
        "retrieval": partial(Retrieval, folder=str(tmp_path)),
    }
    columns = {
        "prompt": [
            {"role": "user", "content": "There are 47 shelves with 38 books on each. How many books are there?"}
        ],
        "tests": [{"assert": "assert double(2) == 4"}],
        "entry_point": "double",
        "database": "books.db",
        "gold_query": "SELECT 47 * 38",
    }
    rows = [{**columns, "environment": name} for name in factories]
    trainer = GRPOTrainer(
        model=str(MODEL),
        reward_funcs=by_length,
        args=GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=20,
            num_generations=4,
            report_to="none",
            max_completion_length=64,
            max_tool_calling_iterations=1,
            use_cpu=True,
            bf16=False,
            logging_steps=1,
            save_strategy="no",
        ),
        train_dataset=Dataset.from_list(rows),
        environment_factory=factories,
    )
    trainer.train()
    logged = trainer.state.log_history[0]
    for name in ("PythonSandbox", "CodeRepair", "Sqlite"):
        assert logged[f"rewards/{name}/mean"] == 0.0
    assert "tools/call_frequency" in logged
