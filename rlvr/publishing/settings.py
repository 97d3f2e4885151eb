"""What must be there before anything is published: the id of a repository, a token and a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlvr.errors import InputError, Problem

TOKENS = "https://huggingface.co/settings/tokens"
GIVE_TOKEN = f"Set HF_TOKEN or run `hf auth login`; the token needs the right to write ({TOKENS})"


def setting_problems(settings: Mapping[str, Any], *, here: bool) -> Iterator[Problem]:
    """What a recipe with `push_to_hub: true` lacks.

    Args:
        here: whether the run will push from this machine.
    """
    name = settings.get("hub_model_id")
    if not name:
        message = "push_to_hub: hub_model_id is missing. Set it to the repository to publish in, as user/name."
        yield Problem(message, "missing-key", "hub_model_id")
    else:
        try:
            check_id(str(name))
        except InputError as error:
            yield Problem(f"hub_model_id: {error}", error.kind, "hub_model_id")
    if here:
        try:
            find_token()
        except InputError as error:
            later = "or set push_to_hub: false, and publish after the run with scripts/publish.py"
            yield Problem(f"push_to_hub: {str(error).rstrip('.')}, {later}.", error.kind, "push_to_hub")


def check_id(repo: str) -> None:
    """Refuse what can't be the id of a repository.

    Raises:
        InputError: of kind "invalid-repository".
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        message = f"{repo} is not the id of a repository: {first_sentence(str(error))} Write user/name."
        raise InputError(message, kind="invalid-repository", key="repo") from error


def find_token() -> str:
    """The token of this machine's user.

    Raises:
        InputError: of kind "hub-offline" or "hub-token-missing".
    """
    from huggingface_hub import get_token
    from huggingface_hub.constants import is_offline_mode

    if is_offline_mode():
        message = "HF_HUB_OFFLINE is set, or the hub could not be reached: nothing can be published. Unset it"
        raise InputError(f"{message}.", kind="hub-offline")
    token = get_token()
    if token is None:
        raise InputError(f"there is no token of the Hugging Face hub. {GIVE_TOKEN}.", kind="hub-token-missing")
    return token


def first_sentence(text: str) -> str:
    line = " ".join(text.split())[:300]
    return line if line.endswith(".") else f"{line}."
