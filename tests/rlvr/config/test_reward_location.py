"""Errors about `where` repeat no secret of its address."""

from __future__ import annotations

import pytest

from rlvr.config.reward_location import InvalidAddress, read_where


@pytest.mark.parametrize(
    ("where", "shown", "why"),
    [
        ("https://judge/x?token=hunter2", "https://judge/x", "a query"),
        ("https://judge/x#access_token=hunter2", "https://judge/x", "a fragment"),
        ("htps://judge/x?token=hunter2", "htps://judge/x", "another error of the same address"),
        ("http://judge:80x?token=hunter2", "http://judge:80x", "an invalid port"),
        ("http://judge/?token=hunter2 x", "http://judge/", "a space"),
        ("http://judge/score?token=hunter2", "http://judge/score", "a path that the client adds"),
        ("http://me:hunter2@judge", "", "a password"),
        ("http://me:hunter2@judge:80x", "http://…@judge:80x", "a password before an invalid port"),
        ("http://me:hunter2#x@judge", "http://…@judge", "a password that ends the host"),
        ("http://me:hunter2 @judge", "", "a password with a space"),
        ("ray://head:10001?token=hunter2", "ray://head:10001", "a Ray cluster"),
    ],
)
def test_an_invalid_address_is_named_without_its_secrets(where: str, shown: str, why: str) -> None:
    with pytest.raises(InvalidAddress) as caught:
        read_where(where)
    assert "hunter" not in str(caught.value) and shown in str(caught.value), why
