"""The Hugging Face hub: what a repository holds, and one commit with all files.

`huggingface_hub` sends the files. It repeats requests that fail, and sends nothing again that has arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import httpx2
from huggingface_hub import CommitOperationAdd, HfApi, ModelInfo, get_token
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import get_session, logging

from rlvr import console
from rlvr.errors import InputError
from rlvr.export.settings import GIVE_TOKEN, check_id, find_token
from rlvr.export.upload import Files
from rlvr.formatting import one_line

_TIMEOUT_S = 120  # without an answer; huggingface_hub's own client waits for ever
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".safetensors.index.json")
_AGAIN = "Run the same command again: what has arrived is not sent again."
_CAUSES = {  # by the status of an answer
    401: ("hub-token-refused", f"the hub does not know the token. {GIVE_TOKEN}"),
    403: ("hub-forbidden", f"the token may not write there. {GIVE_TOKEN}"),
    404: ("hub-forbidden", f"the hub knows no such repository, or the token may not see it. {GIVE_TOKEN}"),
    **dict.fromkeys((409, 412), ("hub-conflict", f"the repository changed at the same time. {_AGAIN}")),
}


def push(repo: str, files: Files, digests: Mapping[str, str], message: str, *, private: bool | None) -> str:
    """Say what will change in a repository, create it if there is none, and commit the files; return the address.

    Args:
        repo: its id; without a namespace, it is the user's own.
        digests: sha256 of the weights by name, as they were scanned.
        private: whether it is to be private; None: as the account's settings say, or as it is.

    Raises:
        InputError: it failed. Nothing of the repository's content changed, since there is one commit.
    """
    check_id(repo)
    with _explained(repo):
        logging.set_verbosity_error()  # its warnings name signed addresses
        get_session().timeout = _TIMEOUT_S
        api = HfApi(token=find_token())
        user = api.whoami()["name"]  # also checks the token: to an unknown one, each repository is missing
        repo = repo if "/" in repo else f"{user}/{repo}"
        found = api.model_info(repo) if api.repo_exists(repo) else None
    if found is None:
        console.info(f"{repo}: will be created{' as a private one' if private else ''}.")
    else:
        _check_fits(found, files, private)
        kept = [name for name in _names(found) if name not in files and name != ".gitattributes"]
        stays = f"these files stay: {', '.join(kept[:5])}{' …' if len(kept) > 5 else ''}" if kept else "no file stays"
        console.info(f"{repo}: exists. Files of the same name are replaced, {stays}.")
    with console.SlowStep(f"Publishing {repo}"), _explained(repo):
        operations = [CommitOperationAdd(name, source) for name, source in files.items()]
        _check_unchanged(operations, digests)
        if found is None:
            api.create_repo(repo, private=private, exist_ok=True)
        head = found.sha if found is not None else None
        return str(api.create_commit(repo, operations, commit_message=message, parent_commit=head).commit_url)


def _check_fits(found: ModelInfo, files: Files, private: bool | None) -> None:
    if private and found.private is False:
        message = f"{found.id} is public, and --private does not change that. Change it on the hub, or name another."
        raise InputError(message, kind="repository-is-public", key="private")
    mixed = [name for name in _names(found) if "/" not in name and name.endswith(_WEIGHTS) and name not in files]
    if mixed:
        raise InputError(
            f"{found.id} holds other weights ({', '.join(mixed[:3])}{' …' if len(mixed) > 3 else ''}), which would be "
            "loaded with these or in place of them. Delete them on the hub, or name another repository.",
            kind="repository-has-other-weights",
            key="repo",
        )


def _check_unchanged(operations: Sequence[CommitOperationAdd], digests: Mapping[str, str]) -> None:
    for operation in operations:
        name, digest = operation.path_in_repo, operation.upload_info.sha256.hex()
        if digest != digests.get(name, digest):
            message = f"{name} was changed after it was scanned, and nothing was sent. Run the same command again."
            raise InputError(message, kind="hash-mismatch", path=name)


def _names(found: ModelInfo) -> list[str]:
    return [item.rfilename for item in found.siblings or ()]


@contextmanager
def _explained(repo: str) -> Iterator[None]:
    """Turn the hub's errors into sentences with a fix, without the token and without signed addresses."""
    try:
        yield
    except (OSError, RuntimeError, ValueError, httpx2.HTTPError) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, HfHubHTTPError):
            cause = cause.__cause__
        said = re.sub(r"(https?://[^\s?]+)\?\S+", r"\1", str((cause and cause.server_message) or error))
        said = said.replace(get_token() or "\0", "(token)")
        kind, text = "hub-failed", f"{one_line(said, 300).rstrip('.')}. {_AGAIN}"
        if cause is not None:
            kind, text = _CAUSES.get(cause.response.status_code, (kind, text))
        raise InputError(f"{repo} was not published: {text}", kind=kind, key="repo") from None
