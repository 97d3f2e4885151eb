"""Submit a recipe to the emulator with the project's own files and request, without its checks of the account."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlvr.config.recipe import load_recipe
from rlvr.config.sagemaker import SageMakerSettings
from rlvr.sagemaker import request, sdk, upload
from tests.support.sagemaker_emulator import containers, storage
from tests.support.sagemaker_emulator.job import REGION, EmulatedJob
from tests.support.sagemaker_emulator.service import TrainingService

DEMO = containers.REPOSITORY / "recipes" / "demo-arithmetic.yaml"


def submit(
    service: TrainingService,
    name: str,
    words: Sequence[str] = (),
    *,
    recipe: Path = DEMO,
    change: Callable[[dict[str, Any]], None] | None = None,
    add: Callable[[Path], None] | None = None,
    **settings: Any,
) -> EmulatedJob:
    """Start a job.

    Args:
        words: overrides of the recipe, as on the command line.
        change: changes the request before it is sent.
        add: changes the folder that is uploaded as the job's code.
        settings: of the section `sagemaker`.
    """
    loaded = load_recipe(recipe, words)
    hosts = {} if "instance_groups" in settings else {"instance_type": "ml.m5.xlarge"}
    defaults = {"role": service.role, "region": REGION, "bucket": service.bucket, **hosts}
    sagemaker = SageMakerSettings(**{**defaults, "max_runtime_s": 3600, **settings})
    with tempfile.TemporaryDirectory(prefix="submission-") as folder:
        files = upload.collect_files(loaded, request.job_environment(loaded, sagemaker), Path(folder))
        assert not files.problems, files.problems
        if add is not None:
            add(files.code)
        drivers = Path(folder) / "drivers"
        drivers.mkdir()
        channels = {file.channel for file in files.files} - {"code"}
        digest = request.recipe_digest(files.recipe.as_dict())
        spec = request.request_spec(
            loaded, sagemaker, name, {"code": str(files.code), "drivers": str(drivers)}, sorted(channels), digest
        )
        built = sdk.build_request(spec)
        s3 = service.client("s3")
        for folder_upload in built["uploads"]:
            storage.upload(s3, [Path(folder_upload["folder"])], folder_upload["uri"])
        for file in files.files:
            if file.channel != "code":
                bucket, key = storage.place(spec["channels"][file.channel])
                s3.put_object(Bucket=bucket, Key=f"{key}/{file.name}", Body=file.source.read_bytes())
        if change is not None:
            change(built["request"])
        service.client("sagemaker").create_training_job(**built["request"])
    return service.job(name)
