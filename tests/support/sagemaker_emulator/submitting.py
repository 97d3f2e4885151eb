"""A recipe as a job: packed and asked for by the project's own code, without its checks of money and quotas."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlvr.config.recipe import load_recipe
from rlvr.config.sagemaker import SageMakerSettings
from rlvr.sagemaker import request, sdk, upload
from tests.support.sagemaker_emulator import containers, storage
from tests.support.sagemaker_emulator.job import REGION, Job
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
) -> Job:
    """Starts a job.

    Args:
        words: overrides of the recipe, as on the command line.
        change: changes the request before it is sent.
        add: changes the folder that is uploaded as the job's code.
        settings: of the section `sagemaker`.
    """
    loaded = load_recipe(recipe, words)
    hosts = {} if "instance_groups" in settings else {"instance_type": "ml.m5.xlarge"}
    defaults = {"role": service.role, "region": REGION, "bucket": service.bucket, **hosts}
    chosen = SageMakerSettings(**{**defaults, "max_runtime_s": 3600, **settings})
    with tempfile.TemporaryDirectory(prefix="submitting-") as folder:
        parcel = upload.pack(loaded, request.environment(loaded, chosen), Path(folder))
        assert not parcel.faults, parcel.faults
        if add is not None:
            add(parcel.code)
        drivers = Path(folder) / "drivers"
        drivers.mkdir()
        channels = {file.channel for file in parcel.files} - {"code"}
        digest = request.digest_of(parcel.recipe.as_dict())
        order = request.order_of(
            loaded, chosen, name, {"code": str(parcel.code), "drivers": str(drivers)}, sorted(channels), digest
        )
        made = sdk.build(order)
        s3 = service.client("s3")
        for one in made["uploads"]:
            storage.upload(s3, [Path(one["folder"])], one["uri"])
        for file in parcel.files:
            if file.channel != "code":
                bucket, key = storage.place(order["channels"][file.channel])
                s3.put_object(Bucket=bucket, Key=f"{key}/{file.name}", Body=file.source.read_bytes())
        if change is not None:
            change(made["request"])
        service.client("sagemaker").create_training_job(**made["request"])
    return service.job(name)
