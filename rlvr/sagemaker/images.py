"""Container images of jobs, and the accelerators of instance types."""

from __future__ import annotations

import re

# AWS's Deep Learning Container with torch 2.13, flash-attn 2.8.3 and deepspeed 0.19.2 on Python 3.12. The key is not
# `pytorch`: its newest version is 2.10, and its patches end sooner. The job's requirements replace none of the three
# (rlvr/sagemaker/container/). The GPU variant is built for CUDA 13, which needs driver 580 or newer.
KEY, VERSION = "pytorch-amzn2023", "2.13"

_GPU_FAMILY = re.compile(r"ml\.(?:p[2-9]|g[4-9]|gr[5-9])[a-z0-9-]*\.")
_OTHER_ACCELERATOR_FAMILY = re.compile(r"ml\.(?:trn|inf)[0-9][a-z0-9-]*\.")


def parse_image(image: str | None) -> tuple[str, str] | None:
    """Key and version in the SDK's image table; None if `image` is a whole URI."""
    if image is None:
        return KEY, VERSION
    if "/" in image:
        return None
    key, _, version = image.partition(":")
    return key, version or "latest"


def has_gpus(instance_type: str) -> bool:
    """Whether an instance type has NVIDIA GPUs, by its family."""
    return _GPU_FAMILY.match(instance_type) is not None


def has_other_accelerators(instance_type: str) -> bool:
    """Whether an instance type has AWS's own accelerators, which this project does not support."""
    return _OTHER_ACCELERATOR_FAMILY.match(instance_type) is not None
