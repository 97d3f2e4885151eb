"""What is shown of recipes and addresses."""

from __future__ import annotations

from rlvr.formatting import hide_secrets


def test_a_recipe_is_shown_without_its_secrets() -> None:
    shown = hide_secrets("hub_token: hf_abc\nuri: https://me:password@host/path\nseed: 1\n")
    assert "hf_abc" not in shown and "password" not in shown
    assert "https://host/path" in shown and "seed: 1" in shown
