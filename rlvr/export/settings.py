"""What publishing needs: the id of a repository, and a token."""

from __future__ import annotations

from huggingface_hub import get_token
from huggingface_hub.constants import is_offline_mode
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from rlvr.errors import InputError
from rlvr.formatting import one_line

GIVE_TOKEN = (
    "Set HF_TOKEN or run `hf auth login`. The token needs the right to write (https://huggingface.co/settings/tokens)."
)


def check_id(repo: str) -> None:
    """Refuse what can't be the id of a repository.

    Raises:
        InputError: of kind "invalid-repository".
    """
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        message = f"{repo} is not the id of a repository: {one_line(str(error), 300).rstrip('.')}. Write user/name."
        raise InputError(message, kind="invalid-repository", key="repo") from error


def find_token() -> str:
    """The token of this machine's user.

    Raises:
        InputError: of kind "hub-offline" or "hub-token-missing".
    """
    if is_offline_mode():
        raise InputError("HF_HUB_OFFLINE is set: nothing can be published. Unset it.", kind="hub-offline")
    token = get_token()
    if token is None:
        raise InputError(f"there is no token of the Hugging Face hub. {GIVE_TOKEN}", kind="hub-token-missing")
    return token
