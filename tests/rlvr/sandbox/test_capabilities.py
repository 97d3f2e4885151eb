"""What the judge does and refuses at each level of confinement."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlvr.sandbox import directories
from rlvr.sandbox.limits import SandboxUnavailable
from rlvr.verifiers.code import detect_capabilities, judge
from tests.support.judged_programs import ADD, ADD_CPP, ONE, SUMS, verdicts
from tests.support.sandbox_capabilities import capabilities_without


def test_the_description_starts_with_the_level() -> None:
    capabilities = detect_capabilities()
    assert capabilities.describe().startswith(f"sandbox {capabilities.level}: ")
    assert capabilities.metadata()["sandbox"].startswith(f"{capabilities.level}: ")


def test_a_weak_sandbox_is_refused_unless_it_is_allowed() -> None:
    with capabilities_without("seccomp", "landlock", "chroot", "user") as capabilities:
        assert capabilities.level == "weak"
        with pytest.raises(SandboxUnavailable, match="allow_weak_sandbox") as error:
            verdicts(ADD, tests=SUMS)
        assert error.value.kind == "sandbox-unavailable"
        assert verdicts(ADD, tests=SUMS, allow_weak_sandbox=True) == ["AC", "AC"]


@pytest.mark.slow
def test_nothing_is_compiled_if_the_compiler_is_not_confined() -> None:
    with capabilities_without("landlock", "chroot", "user") as capabilities:
        assert capabilities.level == "sealed"
        assert verdicts(ADD, tests=SUMS) == ["AC", "AC"]
        with pytest.raises(SandboxUnavailable, match="allow_weak_sandbox") as error:
            verdicts(ADD_CPP, language="cpp", tests=SUMS)
        assert error.value.kind == "compiler-not-confined"
        assert verdicts(ADD_CPP, language="cpp", tests=SUMS, allow_weak_sandbox=True) == ["AC", "AC"]


@pytest.mark.slow
def test_without_landlock_the_compiler_runs_in_its_own_root(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can change the root")
    secret = tmp_path / "secret.txt"
    secret.write_text("0")
    tmp_path.chmod(0o755)
    with capabilities_without("landlock") as capabilities:
        assert capabilities.level == "strong"
        assert verdicts(ADD_CPP, language="cpp", tests=SUMS) == ["AC", "AC"]
        reading = f'#include <cstdio>\nint x = 1 +\n#include "{secret}"\n;\nint main() {{ std::printf("%d", x); }}'
        judgement = judge(reading, language="cpp", tests=ONE)
        assert judgement.verdicts == ["CE"]
        assert "No such file or directory" in judgement.compile_output


def test_python_is_judged_if_no_file_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as context:
        context.setattr(directories, "temporary_folders", lambda: [Path("/proc/nowhere")])
        with capabilities_without():
            assert verdicts(ADD, tests=SUMS) == ["AC", "AC"]
            judgement = judge(ADD_CPP, language="cpp", tests=SUMS)
            assert judgement.verdicts == ["SE", "SE"]
            assert "no temporary folder can be made" in judgement.reasons[0]
