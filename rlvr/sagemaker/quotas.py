"""The quotas that a job counts against: on-demand, spot and warm-pool hosts have one each, for every instance type.

Service Quotas has a code for each as well. They are known for sure only from the account itself, so none stands here:
`lookup_command` asks for them, and a quota that is too small is named with the code that the account has given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rlvr.config.sagemaker import SageMakerSettings


@dataclass(frozen=True)
class Quota:
    """A quota by its name in Service Quotas, and how many hosts of it a job takes."""

    name: str
    needed: int


def quotas_of(settings: SageMakerSettings) -> list[Quota]:
    """The quotas of a job, each once."""
    needed: dict[str, int] = {}
    for group in settings.groups:
        kind = "spot training job usage" if settings.spot else "training job usage"
        names = [f"{group.instance_type} for {kind}"]
        if settings.keep_alive_s:
            names.append(f"{group.instance_type} for training warm pool usage")
        for name in names:
            needed[name] = needed.get(name, 0) + group.instance_count
    return [Quota(name, count) for name, count in needed.items()]


def console_link(region: str | None) -> str:
    region = region or "us-east-1"
    return f"https://{region}.console.aws.amazon.com/servicequotas/home/services/sagemaker/quotas"


def lookup_command(wanted: Iterable[Quota], region: str | None) -> str:
    """The command that says code, value and name of these quotas in the caller's account."""
    names = ", ".join(f'"{one.name}"' for one in wanted)
    return (
        f"aws service-quotas list-service-quotas --service-code sagemaker --region {region or 'us-east-1'} "
        f"--output text --query 'Quotas[?contains(`[{names}]`, QuotaName)].[QuotaCode, Value, QuotaName]'"
    )


def quota_faults(wanted: Iterable[Quota], found: Iterable[Mapping[str, Any]], region: str | None) -> list[str]:
    """What the account's quotas, as Service Quotas lists them, are too small for; one that isn't listed is left out."""
    listed = {str(one["QuotaName"]): one for one in found}
    faults = []
    for quota in wanted:
        one = listed.get(quota.name)
        if one is None or float(one["Value"]) >= quota.needed:
            continue
        code = one.get("QuotaCode")
        ask = f"look for its name{f' or its code {code}' if code else ''} in {console_link(region)}"
        if code:
            ask += (
                f", or: aws service-quotas request-service-quota-increase --service-code sagemaker --quota-code {code} "
                f"--desired-value {quota.needed} --region {region}"
            )
        faults.append(
            f"The quota {quota.name} is {float(one['Value']):g} in {region}, but the job takes {quota.needed}. Take "
            f"another instance type or region, or ask for more, which takes hours to days: {ask}"
        )
    return faults
