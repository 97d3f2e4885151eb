"""Short messages about trackers' errors, without secrets. Imports no slow library."""

from __future__ import annotations

import os
import re
import sys

from tqdm import tqdm

from rlvr import console

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
    (r"(?:error code:?|too many) (\d{3})", r"answers with HTTP status \1"),
)


def redact_uri(uri: str) -> str:
    """A tracking URI without user, password and query."""
    scheme, separator, rest = uri.partition("://")
    return re.split(r"[?#]", f"{scheme}{separator}{rest.rpartition('@')[2]}")[0]


def redact(text: str, uri: str = "") -> str:
    """A library's message without the credentials of the URI and of the environment."""
    text = re.sub(r"://\S*@", "://", text.replace(uri, redact_uri(uri)))
    password = uri.partition("://")[2].rpartition("@")[0].partition(":")[2]
    secrets = [value for name, value in os.environ.items() if re.search("(TOKEN|PASSWORD|SECRET|KEY)$", name)]
    for secret in (password, *secrets):
        if len(secret) >= 4:
            text = text.replace(secret, "…")
    return text


def describe_error(error: BaseException, uri: str = "") -> str:
    """What is wrong with the server or store, to follow its address in a sentence."""
    chain = [error]
    while len(chain) < 10 and (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    texts = [f"{type(one).__name__}: {one}" for one in chain]
    for pattern, words in _REASONS:
        if match := re.search(pattern, "\n".join(texts)):
            return match.expand(words)
    return f"fails ({redact(texts[0], uri).splitlines()[0][:300]})"


def print_message(text: str) -> None:
    """Print a message about a tracker; a progress bar stays intact."""
    tqdm.write(console.wrap(f"  {text}", console.columns(sys.stdout)), file=sys.stdout)
    sys.stdout.flush()
