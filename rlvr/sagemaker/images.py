"""Which container a job runs in, and which instance types have GPUs."""

from __future__ import annotations

import re

# AWS's Deep Learning Container with torch 2.13, flash-attn 2.8.3 and deepspeed 0.19.2 on Python 3.12. This key is not
# `pytorch`, whose newest is 2.10 and which is past its end of patches sooner. The job's requirements replace none of
# the three (rlvr/sagemaker/container/). Its GPU variant is built for CUDA 13, which needs a driver of 580 or newer.
KEY, VERSION = "pytorch-amzn2023", "2.13"

_GPU_FAMILY = re.compile(r"ml\.(?:p[2-9]|g[4-9]|gr[5-9])[a-z0-9-]*\.")
_ACCELERATOR_FAMILY = re.compile(r"ml\.(?:trn|inf)[0-9][a-z0-9-]*\.")


def key_and_version(image: str | None) -> tuple[str, str] | None:
    """Key and version in the SDK's table of images; None where `image` is a whole URI."""
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
    """Whether its accelerators are Amazon's own, for which nothing here is made."""
    return _ACCELERATOR_FAMILY.match(instance_type) is not None
