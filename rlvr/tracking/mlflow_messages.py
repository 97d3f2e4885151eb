"""Short messages about trackers' errors, without passwords, and recipes without secrets. Imports no slow library."""

from __future__ import annotations

import os
import re
import sys

from tqdm import tqdm

from rlvr import console
from rlvr.errors import InputError

_SECRET_VARIABLES = (
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "WANDB_API_KEY",
    "TRACKIO_WRITE_TOKEN",
    "HF_TOKEN",
)

# Messages of urllib3, requests and SQLAlchemy -> what follows "MLflow at ADDRESS".
_REASONS = (
    (r"Connection refused", "refuses connections"),
    (r"NameResolutionError|Name or service not known|name resolution", "can't be found: unknown host name"),
    (r"timed out|Timeout", "does not answer in time"),
    (r"Connection aborted|Connection reset|closed connection|RemoteDisconnected", "closes the connection"),
    (r"database or disk is full|No space left", "can't be written: the disk is full"),
    (r"database is locked", "is locked by another program"),
    (r"readonly database|Permission denied|PERMISSION_DENIED", "can't be written: permission denied"),
    (r"unable to open|No such file|Not a directory|Read-only file", "can't be opened: there is no such folder"),
    (r"error code:? (\d{3})", r"answers with HTTP status \1"),
    (r"too many (\d{3}) error", r"answers with HTTP status \1"),
)


def redact_uri(uri: str) -> str:
    """A tracking URI without user, password and query."""
    scheme, separator, rest = uri.partition("://")
    return re.split(r"[?#]", f"{scheme}{separator}{rest.rpartition('@')[2]}")[0]


def redact(text: str, uri: str) -> str:
    """A library's message without the credentials of the URI or of MLflow's variables."""
    text = text.replace(uri, redact_uri(uri))
    text = re.sub(r"://\S*@", "://", text)
    password = uri.partition("://")[2].rpartition("@")[0].partition(":")[2]
    for secret in (password, *(os.environ.get(name, "") for name in _SECRET_VARIABLES)):
        if len(secret) >= 4:
            text = text.replace(secret, "…")
    return text


def describe_error(error: BaseException, uri: str) -> str:
    """What is wrong with the server or store, to follow its address in a sentence."""
    if isinstance(error, InputError):
        return f"can't be used: {error}"
    chain: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(chain) < 10:
        chain.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__ or cause.__context__
    for pattern, words in _REASONS:
        if match := re.search(pattern, "\n".join(chain)):
            return match.expand(words)
    first = redact(chain[0], uri).splitlines()[0]
    return f"fails ({first[:300]})"


def print_message(text: str) -> None:
    """Print a message about a tracker; a progress bar stays intact."""
    tqdm.write(console.wrap(f"  {text}", console.columns(sys.stdout)), file=sys.stdout)
    sys.stdout.flush()
