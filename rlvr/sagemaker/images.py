"""Container images of jobs, and the GPUs of instance types."""

from __future__ import annotations

import re

from rlvr.errors import InputError

# AWS's Deep Learning Container with torch 2.13, flash-attn 2.8.3 and deepspeed 0.19.2 on Python 3.12. The job's
# requirements replace none of the three (rlvr/sagemaker/container/). The GPU variant is built for CUDA 13, which needs
# driver 580 or newer.
KEY, VERSION = "pytorch-amzn2023", "2.13"
_CUDA = {"2.11": "cu130", "2.12": "cu130", "2.13": "cu133", "2.14": "cu133"}

# The registry's account in each region, from the SDK's table; tests compare the two.
_ACCOUNT = "763104351884"
_REGIONS = """ap-northeast-1 ap-northeast-2 ap-south-1 ap-southeast-1 ap-southeast-2 ca-central-1 eu-central-1
    eu-north-1 eu-west-1 eu-west-2 eu-west-3 sa-east-1 us-east-1 us-east-2 us-west-1 us-west-2"""
_OTHER_ACCOUNTS = {
    "af-south-1": "626614931356",
    "ap-east-1": "871362719292",
    "ap-east-2": "975050140332",
    "ap-northeast-3": "364406365360",
    "ap-south-2": "772153158452",
    "ap-southeast-3": "907027046896",
    "ap-southeast-4": "457447274322",
    "ap-southeast-5": "550225433462",
    "ap-southeast-6": "633930458069",
    "ap-southeast-7": "590183813437",
    "ca-west-1": "204538143572",
    "cn-north-1": "727897471807",
    "cn-northwest-1": "727897471807",
    "eu-central-2": "380420809688",
    "eu-south-1": "692866216735",
    "eu-south-2": "503227376785",
    "il-central-1": "780543022126",
    "me-central-1": "914824155844",
    "me-south-1": "217643126080",
    "me-west-1": "124382933778",
    "mx-central-1": "637423239942",
    "us-gov-east-1": "446045086412",
    "us-gov-west-1": "442386744353",
}
_ACCOUNTS = dict.fromkeys(_REGIONS.split(), _ACCOUNT) | _OTHER_ACCOUNTS

_GPU_FAMILY = re.compile(r"ml\.(?:p[2-9]|g[4-9]|gr[5-9])[a-z0-9-]*\.")


def image_uri(image: str | None, region: str, instance_type: str) -> str:
    """The URI of an image: one as it is, or one of AWS's by `key:version`; None for the default.

    Raises:
        InputError: the image or the region is unknown.
    """
    if image is not None and "/" in image:
        return image
    key, _, version = (image or f"{KEY}:{VERSION}").partition(":")
    if key != KEY or version not in _CUDA or region not in _ACCOUNTS:
        raise InputError(
            f"No image {key}:{version} is known for {region}. Check the region, take a version of {KEY} from "
            f"{', '.join(_CUDA)}, or name a whole URI (--sagemaker.image).",
            kind="unknown-image",
            key="image",
        )
    build = _CUDA[version] if has_gpus(instance_type) else "cpu"
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"{_ACCOUNTS[region]}.dkr.ecr.{region}.{suffix}/pytorch:{version}-{build}-amzn2023-sagemaker"


def has_gpus(instance_type: str) -> bool:
    """Whether an instance type has NVIDIA GPUs, by its family."""
    return _GPU_FAMILY.match(instance_type) is not None
