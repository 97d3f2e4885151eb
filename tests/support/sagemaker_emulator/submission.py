"""Submit the demonstration to the emulator, without the project's checks of the account."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr.config.recipe import load_recipe
from rlvr.config.sagemaker import SageMakerSettings
from rlvr.sagemaker import request, upload
from tests.support.sagemaker_emulator import containers, storage
from tests.support.sagemaker_emulator.job import REGION, EmulatedJob
from tests.support.sagemaker_emulator.service import TrainingService

DEMO = containers.REPOSITORY / "recipes" / "demo-arithmetic.yaml"


def submit(service: TrainingService, name: str, words: Sequence[str] = (), **settings: Any) -> EmulatedJob:
    """Start a job of the demonstration.

    Args:
        words: overrides of the recipe, as on the command line.
        settings: of the section `sagemaker`.
    """
    loaded = load_recipe(DEMO, words)
    hosts = {} if "instance_groups" in settings else {"instance_type": "ml.m5.xlarge"}
    defaults = {"role": service.role, "region": REGION, "bucket": service.bucket, **hosts}
    sagemaker = SageMakerSettings(**{**defaults, "max_runtime_s": 3600, **settings})
    with tempfile.TemporaryDirectory(prefix="submission-") as folder:
        files = upload.collect_files(loaded, request.job_environment(loaded, sagemaker), Path(folder))
        assert not files.problems, files.problems
        channels = dict.fromkeys(file.channel for file in files.files)
        digest = request.recipe_digest(files.recipe.as_dict())
        content = request.build_request(loaded, sagemaker, name, channels, digest)
        s3 = service.client("s3")
        storage.upload(s3, [files.code], request.channel_uri(sagemaker, name, "code"))
        for file in files.files:
            if file.channel != "code":
                bucket, key = storage.place(request.channel_uri(sagemaker, name, file.channel))
                s3.put_object(Bucket=bucket, Key=f"{key}/{file.name}", Body=file.source.read_bytes())
        service.client("sagemaker").create_training_job(**content)
    return service.job(name)
