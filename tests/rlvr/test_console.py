"""Former command-line flags still work, and name their successors."""

from __future__ import annotations

import pytest

from rlvr import console


def test_a_former_flag_is_replaced_and_its_successor_is_named_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--another", "--key-file=a=b", "--another-one", "another"]
    replaced = console.replace_former_flags(words, {"--another": "--allow_duplicate", "--key-file": "--key_file"})
    assert replaced == ["--allow_duplicate", "--key_file=a=b", "--another-one", "another"]
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and "--allow_duplicate" in errors[0] and "--key_file" in errors[1]
