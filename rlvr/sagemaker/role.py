"""The role that a job runs as: whether SageMaker may take it on. What the role itself may do only the service knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SERVICE = "sagemaker.amazonaws.com"


def trust_faults(role: str, described: Mapping[str, Any]) -> list[str]:
    """What of a role, as IAM describes it, keeps SageMaker from taking it on.

    Only what is certain: a policy that allows it under a condition is left for the service to judge.

    Args:
        described: the `Role` that IAM's GetRole answers.
    """
    document = described.get("AssumeRolePolicyDocument")
    statements = document.get("Statement") if isinstance(document, Mapping) else None
    if not statements:
        return []
    listed = [statements] if isinstance(statements, Mapping) else statements
    if any(one.get("Effect") == "Allow" and _names_sagemaker(one) for one in listed):
        return []
    return [
        f"SageMaker may not take on the role {role}: its trust policy doesn't allow sts:AssumeRole to {SERVICE}. "
        "docs/sagemaker/trust-policy.json is one that does: aws iam update-assume-role-policy --role-name "
        f"{role.rpartition('/')[2]} --policy-document file://policies/trust-policy.json; or take another role."
    ]


def _names_sagemaker(statement: Mapping[str, Any]) -> bool:
    if "NotPrincipal" in statement:
        return True
    principal = statement.get("Principal")
    if not isinstance(principal, Mapping):
        return bool(principal == "*")
    services = principal.get("Service", [])
    return principal.get("AWS") == "*" or SERVICE in ([services] if isinstance(services, str) else services)
