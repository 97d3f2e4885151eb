"""Imitations of AWS: moto in this process for whatever executes no job, and the emulator for jobs that run."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sagemaker_emulator.service import TrainingService

REGION = "us-east-1"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Its address."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def empty_account(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The server's address, an account with nothing in it, and a folder to work in that knows of no job."""
    monkeypatch.chdir(tmp_path)
    for name, value in (
        ("AWS_ENDPOINT_URL", server),
        ("AWS_DEFAULT_REGION", REGION),
        ("AWS_ACCESS_KEY_ID", "testing"),
        ("AWS_SECRET_ACCESS_KEY", "testing"),
    ):
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    urllib.request.urlopen(urllib.request.Request(f"{server}/moto-api/reset", method="POST"), timeout=10).read()
    return server


@pytest.fixture
def account(empty_account: str) -> str:
    """An account with a role and a bucket."""
    import boto3

    boto3.client("iam").create_role(RoleName="Trainer", AssumeRolePolicyDocument="{}")
    boto3.client("s3").create_bucket(Bucket="grpo-test")
    return empty_account


@pytest.fixture(scope="module")
def service(prefork: Path) -> Iterator[TrainingService]:
    with TrainingService(prefork=prefork) as service:
        yield service
