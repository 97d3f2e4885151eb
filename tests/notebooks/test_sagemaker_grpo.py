"""notebooks/sagemaker_grpo.ipynb from its first cell to its last, with a job that trains in the emulator.

The first kernel and the job start normally. Only the second kernel is forked from the prefork server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.support.sagemaker_emulator import containers
from tests.support.sagemaker_emulator.service import TrainingService
from tests.support.sagemaker_emulator.storage import ACCOUNT

REPOSITORY = Path(__file__).resolve().parents[2]
NOTEBOOK = REPOSITORY / "notebooks" / "sagemaker_grpo.ipynb"
ROLE = "grpo-recipes-job"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service() -> Iterator[TrainingService]:
    with TrainingService() as service:
        service.client("iam").create_role(RoleName=ROLE, AssumeRolePolicyDocument="{}")
        yield service


@pytest.fixture
def account(service: TrainingService, monkeypatch: pytest.MonkeyPatch) -> TrainingService:
    """The service, with the environment variables for new kernels."""
    for name, value in service.environment.items():
        monkeypatch.setenv(name, value)
    return service


@pytest.fixture
def forked(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a kernel that tests/support/prefork.py forks, so that its imports take no time."""
    import ipykernel_launcher

    # A kernel ends if its parent is not the process that requested it.
    words = ["env", "-u", "JPY_PARENT_PID", *command(ipykernel_launcher.__file__, "-f", "{connection_file}")]
    file = tmp_path / "jupyter" / "kernels" / "forked" / "kernel.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"argv": words, "display_name": "forked", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    return "forked"


class NotebookSession:
    """The notebook in a fresh kernel, while the context is open."""

    def __init__(self, folder: Path, kernel: str = "python3", **parameters: object) -> None:
        import nbclient
        import nbformat

        self.notebook = nbformat.read(NOTEBOOK, as_version=4)
        place = {"metadata": {"path": str(NOTEBOOK.parent)}}
        self.client = nbclient.NotebookClient(self.notebook, timeout=600, kernel_name=kernel, resources=place)
        (self.parameters,) = (cell for cell in self.notebook.cells if "parameters" in cell.metadata.get("tags", []))
        steps = ["--max_steps", "2", "--per_device_train_batch_size", "8", "--evaluation.rows", "8"]
        steps += ["--task.train_rows", "64"]
        self.set(
            RECIPE="recipes/demo-arithmetic.yaml",
            OVERRIDES=[*steps, "--output_dir", str(folder)],
            INSTANCE_TYPE="ml.m5.xlarge",
            ROLE=f"arn:aws:iam::{ACCOUNT}:role/{ROLE}",
            HERE=[],
            **parameters,
        )

    def __enter__(self) -> NotebookSession:
        self.kernel = self.client.setup_kernel()
        self.kernel.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self.kernel.__exit__(None, None, None)

    def set(self, **parameters: object) -> None:
        for name in parameters:
            assert f"\n{name} = " in f"\n{self.parameters.source}", "a parameter of the notebook"
        self.parameters.source += "".join(f"\n{name} = {value!r}" for name, value in parameters.items())

    def run_all(self) -> tuple[str, bool]:
        """Run all cells; return their output, and whether the last one was reached."""
        from nbclient.exceptions import CellExecutionError

        code = [place for place, cell in enumerate(self.notebook.cells) if cell.cell_type == "code"]
        for place in code:
            self.notebook.cells[place].outputs = []
        ended = True
        try:
            for place in code:
                self.client.execute_cell(self.notebook.cells[place], place)
        except CellExecutionError:
            ended = False
        outputs = [output for place in code for output in self.notebook.cells[place].outputs]
        assert len(json.dumps(outputs)) < 100_000, "it stays small"
        return "".join(
            cell_output.get("text") or cell_output.get("data", {}).get("text/plain", "") for cell_output in outputs
        ), ended


@pytest.mark.skipif(containers.why_not() is not None, reason=str(containers.why_not()))
def test_it_reaches_a_verdict_and_starts_no_second_job_after_a_restart(
    account: TrainingService, tmp_path: Path, forked: str
) -> None:
    with NotebookSession(tmp_path, BUCKET=account.bucket, HERE_ROWS=2) as session:
        output, ended = session.run_all()
        assert not ended and "Nothing was submitted. Read the plan" in output
        for words in ("── train row 0 ──", "→ base, ", "1 x ml.m5.xlarge (train), on demand"):
            assert words in output, words
        assert "Traceback" not in output and "Warning" not in output
        assert not account.requests and not account.client("s3").list_objects_v2(Bucket=account.bucket)["KeyCount"]

        session.set(SUBMIT=True)
        output, ended = session.run_all()
        assert ended, output
    (request,) = account.requests
    name = request["TrainingJobName"]
    for words in (
        f"{name} is submitted.",
        "Starting → Downloading → Training → Uploading → Completed",
        f"{name}: Completed",
        "On 8 held-out problems",
        "trained − base: ",
        "→ trained, ",
        f"{name}: deletes s3://{account.bucket}/",
    ):
        assert words in output, words
    assert "Traceback" not in output and "Warning" not in output
    assert (tmp_path / name / "adapter" / "adapter_model.safetensors").is_file()
    assert (tmp_path / name / "report.html").is_file()

    with NotebookSession(tmp_path, forked, BUCKET=account.bucket, HERE_ROWS=0, SUBMIT=True, DELETE=True) as session:
        output, ended = session.run_all()
    assert ended, output
    assert f"{name} was submitted before: Completed." in output and "trained − base: " in output
    assert len(account.requests) == 1
    assert f"{name}: deleted " in output
    assert not account.client("s3").list_objects_v2(Bucket=account.bucket, Prefix=f"grpo-recipes/{name}/")["KeyCount"]


def test_it_has_no_outputs_and_by_default_submits_and_deletes_nothing() -> None:
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in notebook.cells)
    parameters = next(cell.source for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    assert re.findall(r"^(SUBMIT|AGAIN|DELETE) = (\w+)$", parameters, re.MULTILINE) == [
        ("SUBMIT", "False"),
        ("AGAIN", "None"),
        ("DELETE", "False"),
    ]


def test_its_links_have_targets() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([\w./-]+)\)", text):
        assert (NOTEBOOK.parent / target).is_file(), target
