"""What `push_to_hub` needs at the end of a run: a repository, a token and the hub."""

from __future__ import annotations

from collections.abc import Iterator

from rlvr.errors import InputError, Problem
from rlvr.preflight.components import RunComponents
from rlvr.publishing.settings import check_id, find_token


def check_publishing(components: RunComponents) -> Iterator[Problem]:
    """The keys of `push_to_hub`, and the token, if the run pushes from this machine."""
    settings = components.settings
    if not settings.get("push_to_hub"):
        return
    if not settings.get("hub_model_id"):
        message = "push_to_hub: hub_model_id is missing. Set it to the repository to publish in, as user/name."
        yield Problem(message, "missing-key", "hub_model_id")
    else:
        try:
            check_id(str(settings["hub_model_id"]))
        except InputError as error:
            yield Problem(f"hub_model_id: {error}", error.kind, "hub_model_id")
    if components.target.is_here:
        try:
            find_token()
        except InputError as error:
            later = "Or set push_to_hub: false, and publish after the run with scripts/publish.py."
            yield Problem(f"push_to_hub: {error} {later}", error.kind, "push_to_hub")
