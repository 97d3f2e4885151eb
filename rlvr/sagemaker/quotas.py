"""Service quotas of a job: on-demand, spot and warm-pool hosts have one each per instance type.

Quota codes are known only from the account, so none is written here. `lookup_command` prints them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rlvr.config.sagemaker import SageMakerSettings
from rlvr.errors import Problem


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


def lookup_command(quotas: Iterable[Quota], region: str | None) -> str:
    """The AWS CLI command that prints code, value and name of these quotas, in lines that fit a terminal."""
    names = ",\n    ".join(f'"{quota.name}"' for quota in quotas)
    return (
        "aws service-quotas list-service-quotas --output text \\\n"
        f"  --service-code sagemaker --region {region or 'us-east-1'} --query \\\n"
        f"  'Quotas[?contains(`[\n    {names}\n  ]`, QuotaName)].[QuotaCode, Value, QuotaName]'"
    )


def quota_problems(quotas: Iterable[Quota], listed: Iterable[Mapping[str, Any]], region: str | None) -> list[Problem]:
    """Quotas that are too small for a job, by the account's list; a quota that is not listed is not judged."""
    by_name = {str(entry["QuotaName"]): entry for entry in listed}
    problems = []
    for quota in quotas:
        entry = by_name.get(quota.name)
        if entry is None or float(entry["Value"]) >= quota.needed:
            continue
        code = entry.get("QuotaCode")
        if code:
            increase = (
                f"code {code} in {console_url(region)}, or: aws service-quotas request-service-quota-increase "
                f"--service-code sagemaker --quota-code {code} --desired-value {quota.needed} --region {region}"
            )
        else:
            increase = f"by its name in {console_url(region)}"
        message = (
            f"The quota {quota.name} is {float(entry['Value']):g} in {region}, but the job needs {quota.needed}. Use "
            f"another instance type or region, or request an increase, which takes hours to days: {increase}"
        )
        problems.append(Problem(message, kind="quota-too-small", key="instance_type"))
    return problems
