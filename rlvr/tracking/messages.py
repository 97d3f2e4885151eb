"""Short messages about trackers' errors, without secrets. Imports no slow library."""

from __future__ import annotations

import os
import re
import sys

from tqdm import tqdm

from rlvr import console


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
    """What is wrong with the server or store, by the first error of the chain; follows its address in a sentence."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return f"fails ({redact(f'{type(error).__name__}: {error}', uri).splitlines()[0][:300]})"


def print_message(text: str) -> None:
    """Print a message about a tracker; a progress bar stays intact."""
    tqdm.write(console.wrap(f"  {text}", console.columns(sys.stdout)), file=sys.stdout)
    sys.stdout.flush()
