"""Tests that are Python statements: whether a wrong value can fail them."""

from __future__ import annotations

import ast

import pytest

from rlvr.verifiers.code.asserts import can_fail
from tests.support.cases import cases

CAN_FAIL = cases(__file__, "can fail")


@pytest.mark.parametrize("code, expected, why", CAN_FAIL, ids=[why for *_, why in CAN_FAIL])
def test_what_can_fail_is_told_from_what_can_not(code: str, expected: bool, why: str) -> None:
    assert can_fail(ast.parse(code)) == expected
