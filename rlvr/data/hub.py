"""The Hugging Face hub: datasets of it, and one failed connection instead of minutes of retries.

The hub's client tries each file six times over 24 seconds, and a run asks for a dozen files.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlvr import console
from rlvr.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


@functools.cache
def try_once() -> None:
    """Make this process and its children offline if the hub's first request finds no connection.

    Call it before the hub is asked for something. Failures after an answer are left to the retries of the hub's client.
    """
    import httpx2
    from huggingface_hub import constants, set_client_factory
    from huggingface_hub.errors import OfflineModeIsEnabled
    from huggingface_hub.utils import get_session

    hooks = get_session().event_hooks  # the hub's own; they refuse requests in offline mode

    class HubClient(httpx2.Client):
        has_answered = False

        def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
            try:
                response = super().send(request, **options)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                if self.has_answered:
                    raise
                _go_offline(constants)
                raise OfflineModeIsEnabled(f"{constants.ENDPOINT} can't be reached: {error}") from error
            self.has_answered = True
            return response

    set_client_factory(lambda: HubClient(event_hooks=hooks, follow_redirects=True, timeout=None))


def _go_offline(constants: Any) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    constants.HF_HUB_OFFLINE = True
    if "datasets" in sys.modules:
        sys.modules["datasets"].config.HF_HUB_OFFLINE = True
    console.error(
        f"The Hugging Face hub ({constants.ENDPOINT}) can't be reached: offline from here on, with its cache."
    )


def download_rows(dataset: str, subset: str | None, how_else: str) -> dict[str, list[dict[str, Any]]]:
    """Load every split of a dataset from the Hugging Face hub or its cache.

    Args:
        dataset, subset: as in `datasets.load_dataset`.
        how_else: a sentence for the error message: how to do without the hub.
    """
    return {str(name): list(split) for name, split in load_hub_dataset(dataset, subset, how_else).items()}


def load_hub_dataset(dataset: str, subset: str | None, how_else: str) -> DatasetDict:
    """Load a dataset from the Hugging Face hub or its cache; arguments as in `download_rows`.

    Raises:
        InputError: the download failed and the cache has no copy.
    """
    from datasets import load_dataset

    was_offline = os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0")
    try_once()
    try:
        loaded = load_dataset(dataset, subset)
    except Exception as error:  # the hub's client raises errors of several libraries; each means: no data
        full_name = f"{dataset} (subset {subset})" if subset else dataset
        reason = " ".join(str(error).split()).rstrip(".")
        retry = "With a network: unset HF_HUB_OFFLINE." if was_offline else "With a network: run it again."
        variables = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")  # `try_once` may have set the first
        is_offline = any(os.environ.get(name, "0") not in ("", "0") for name in variables)
        raise InputError(
            f"Could not download the dataset {full_name} from the Hugging Face hub, and no copy is cached: {reason}. "
            f"{how_else} {retry}",
            kind="hub-unreachable" if is_offline else "dataset-not-found",
            key="path",
        ) from error
    for column in mixed_columns(loaded):
        console.error(
            f"warning: {dataset}: the column {column} has values of several types, and the datasets library may have "
            'changed them ("105" to 105). Download the file, and name it as path: it is then read as it is.'
        )
    return loaded


def mixed_columns(splits: Mapping[str, Dataset]) -> list[str]:
    """The columns that the datasets library keeps as JSON, wholly or in part, since their values have several types."""
    kept = {name for split in splits.values() for name, feature in split.features.items() if "Json(" in repr(feature)}
    return sorted(kept)
