"""Service quotas of a job: on-demand, spot and warm-pool hosts have one each per instance type."""

from __future__ import annotations

from collections import Counter

from rlvr.config.sagemaker import SageMakerSettings


def required_quotas(settings: SageMakerSettings) -> dict[str, int]:
    """The quotas of a job by their names in Service Quotas, with the number of hosts that it needs of each."""
    needed: Counter[str] = Counter()
    for group in settings.groups:
        usage = "spot training job usage" if settings.spot else "training job usage"
        needed[f"{group.instance_type} for {usage}"] += group.instance_count
        if settings.keep_alive_s:
            needed[f"{group.instance_type} for training warm pool usage"] += group.instance_count
    return dict(needed)


def console_url(region: str | None) -> str:
    region = region or "us-east-1"
    return f"https://{region}.console.aws.amazon.com/servicequotas/home/services/sagemaker/quotas"
