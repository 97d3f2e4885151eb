"""Service quotas of a job: on-demand, spot and warm-pool hosts have one each per instance type."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.sagemaker.settings import SageMakerSettings


@dataclass(frozen=True)
class Quota:
    """A quota's name in Service Quotas, and the number of hosts that a job needs of it."""

    name: str
    needed: int


def required_quotas(settings: SageMakerSettings) -> list[Quota]:
    """The quotas of a job, each once."""
    needed: dict[str, int] = {}
    for group in settings.groups:
        usage = "spot training job usage" if settings.spot else "training job usage"
        names = [f"{group.instance_type} for {usage}"]
        if settings.keep_alive_s:
            names.append(f"{group.instance_type} for training warm pool usage")
        for name in names:
            needed[name] = needed.get(name, 0) + group.instance_count
    return [Quota(name, count) for name, count in needed.items()]


def console_url(region: str | None) -> str:
    region = region or "us-east-1"
    return f"https://{region}.console.aws.amazon.com/servicequotas/home/services/sagemaker/quotas"
