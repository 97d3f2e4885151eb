"""The Hugging Face hub: what a repository holds, and one commit with all files.

`huggingface_hub` sends the files. It repeats requests that fail, and sends nothing again that has arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rlvr.errors import InputError
from rlvr.formatting import count
from rlvr.publishing.settings import GIVE_TOKEN, TOKENS, check_id, find_token, first_sentence
from rlvr.publishing.upload import UploadFile

TIMEOUT_S = 120  # without an answer; huggingface_hub's own client waits for ever
WEIGHTS = (".safetensors", ".gguf", ".bin", ".safetensors.index.json")


@dataclass(frozen=True)
class Repository:
    """A model repository as it was found.

    Attributes:
        id: with its namespace.
        private: whether it is, or will be, private; None: as the account's settings say.
        head: its last commit; None if there is no repository yet.
        files: that it holds.
    """

    id: str
    private: bool | None = None
    head: str | None = None
    files: tuple[str, ...] = ()

    def describe(self, files: Sequence[UploadFile]) -> str:
        """What an upload of files would do, as a sentence."""
        kind = {True: "private", False: "public", None: "its visibility is the account's default"}[self.private]
        if self.head is None:
            return f"{self.id}: will be created ({kind})."
        names = {file.name for file in files}
        replaced = sum(name in names for name in self.files)
        kept = [name for name in self.files if name not in names and name != ".gitattributes"]
        stays = f"{count(len(kept), 'other file')} stay: {', '.join(kept[:5])}{' …' if len(kept) > 5 else ''}"
        return (
            f"{self.id}: exists ({kind}) with {count(len(self.files), 'file')}; {replaced} will be replaced, "
            f"{stays if kept else 'no other file stays'}. Earlier versions stay in its history."
        )


def look_up(repo: str, *, private: bool | None) -> Repository:
    """Find out what a repository holds; one without a namespace is the user's own.

    Args:
        private: whether it is to be private; None: as the account's settings say, or as it is.

    Raises:
        InputError: the token or the repository can't be used, or the hub can't be reached.
    """
    from huggingface_hub.errors import RepositoryNotFoundError

    check_id(repo)
    with _explained(repo):
        api = _client()
        if "/" not in repo:
            repo = f"{api.whoami()['name']}/{repo}"
        try:
            found = api.model_info(repo)
        except RepositoryNotFoundError:
            if "/" in repo:
                api.whoami()  # the hub answers in the same way to a token that it doesn't know
            return Repository(repo, private)
    if private and found.private is False:
        message = f"{repo} is public, and --private does not change that. Change it on the hub, or name another one"
        raise InputError(f"{message}.", kind="repository-is-public", key="private")
    names = tuple(item.rfilename for item in found.siblings or ())
    return Repository(repo, found.private, found.sha, names)


def push(repository: Repository, files: Sequence[UploadFile], message: str) -> str:
    """Create the repository if there is none, and commit the files; return the commit's address.

    Raises:
        InputError: it failed. Nothing of the repository's content changed, since there is one commit.
    """
    from huggingface_hub import CommitOperationAdd

    mixed = sorted(set(filter(_is_weights, repository.files)) - {file.name for file in files})
    if mixed:
        raise InputError(
            f"{repository.id} holds other weights ({', '.join(mixed[:3])}{' …' if len(mixed) > 3 else ''}), which "
            "would be loaded together with these or in place of them. Delete them on the hub, or name another "
            "repository.",
            kind="repository-has-other-weights",
            key="repo",
        )
    with _explained(repository.id):
        api = _client()
        if repository.head is None:
            api.create_repo(repository.id, private=repository.private, exist_ok=True)
        operations = [
            CommitOperationAdd(file.name, file.source if isinstance(file.source, bytes) else str(file.source))
            for file in files
        ]
        commit = api.create_commit(repository.id, operations, commit_message=message, parent_commit=repository.head)
    return str(commit.commit_url)


def _is_weights(name: str) -> bool:
    return "/" not in name and name.endswith(WEIGHTS)


def _client() -> Any:
    from huggingface_hub import HfApi
    from huggingface_hub.utils import get_session, logging

    logging.set_verbosity_error()  # its warnings name signed addresses
    get_session().timeout = TIMEOUT_S
    return HfApi(token=find_token())


@contextmanager
def _explained(repo: str) -> Iterator[None]:
    """Turn the hub's errors into sentences with a fix, without the token."""
    import httpx2

    try:
        yield
    except InputError:
        raise
    except (OSError, RuntimeError, ValueError, httpx2.HTTPError) as error:
        raise _explain(error, repo) from None


def _explain(error: BaseException, repo: str) -> InputError:
    from huggingface_hub.errors import HfHubHTTPError

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, HfHubHTTPError):
        cause = cause.__cause__
    response = cause.response if cause is not None else None
    status = response.status_code if response is not None else None
    said = first_sentence(_without_token(str((cause.server_message if cause is not None else None) or error)))
    owner = repo.partition("/")[0]
    again = "Run the same command again: what has arrived is not sent again"
    wait = response.headers.get("Retry-After") if response is not None else None
    kind, text = {
        401: ("hub-token-refused", f"the hub does not know the token. {GIVE_TOKEN}."),
        403: (
            "hub-forbidden",
            f"the token may not write there. Use a token of {owner} with the right to write ({TOKENS}), or name a "
            "repository of your own.",
        ),
        404: ("hub-forbidden", f"the hub knows no such repository, or the token may not see it. {GIVE_TOKEN}."),
        409: ("hub-conflict", f"it changed at the same time. {again}."),
        412: ("hub-conflict", f"it changed at the same time. {again}."),
        429: (
            "hub-rate-limit",
            f"the hub refuses more requests for now. Wait {f'{wait} seconds' if wait else 'some minutes'}. {again}.",
        ),
    }.get(status or 0, ("", ""))
    if not kind and status is not None and status < 500:
        kind, text = "hub-refused", f"the hub refused it: {said}"
    elif not kind and isinstance(error, ValueError):
        kind, text = "hub-refused", f"it was refused: {said}"
    elif not kind:
        kind, text = "hub-unreachable", f"the connection failed: {said} {again}."
    return InputError(f"{repo} was not published: {text}", kind=kind, key="repo")


def _without_token(text: str) -> str:
    from huggingface_hub import get_token

    token = get_token()
    text = re.sub(r"(https?://[^\s?]+)\?\S+", r"\1", text)  # signed addresses
    return text.replace(token, "(token)") if token else text
