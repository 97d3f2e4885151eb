"""Messages about trackers have no password, and a short cause."""

from __future__ import annotations

import pytest

from rlvr.tracking.messages import describe_error, redact, redact_uri
from tests.support.mlflow_server import Server


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://u:hush@host:5000/path", "http://host:5000/path"),
        ("http://u:hu/sh@host", "http://host"),
        ("http://u:h@ush@host", "http://host"),
        ("postgresql://u:p@host/db?password=hush", "postgresql://host/db"),
        ("sqlite:////runs/mlflow.db", "sqlite:////runs/mlflow.db"),
        ("arn:aws:sagemaker:eu-west-1:1:mlflow-app/x", "arn:aws:sagemaker:eu-west-1:1:mlflow-app/x"),
    ],
)
def test_an_address_is_shown_without_its_password(uri: str, shown: str) -> None:
    assert redact_uri(uri) == shown
    assert redact(f"can't reach {uri}: no", uri) == f"can't reach {shown}: no"


def test_a_password_in_a_message_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "quiet-please")
    words = "401 for u with password hush-hush, token quiet-please at http://u:hush-hush@host/x"
    assert redact(words, "http://u:hush-hush@host") == "401 for u with password …, token … at http://host/x"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("uri", "words", "why"),
    [
        ("sqlite:////proc/nowhere/mlflow.db", "No such file or directory", "a folder that can't be made"),
        ("http://no-such-host.invalid", "Name or service not known", "a misspelt server"),
        ("http://127.0.0.1:1", "Connection refused", "no server"),
        ("forbids", "error code 403", "no permission, said by a proxy"),
    ],
)
def test_errors_of_libraries_become_short_causes(uri: str, words: str, why: str, server: Server) -> None:
    from mlflow import MlflowClient

    if uri == "forbids":
        server.behaviour, uri = uri, server.uri
    with pytest.raises(Exception) as raised:
        MlflowClient(uri).get_experiment_by_name("x")
    assert words in describe_error(raised.value, uri), why
