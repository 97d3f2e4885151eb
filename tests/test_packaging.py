"""What an installation pulls in, and that the tested versions are ones that the project admits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rlvr.config.specs import RewardSpec
from rlvr.scoring.backends.http_backend import HttpRewardBackend
from rlvr.scoring.registry import load_reward

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BASE = [Requirement(text) for text in PROJECT["dependencies"]]
EXTRAS = {name: [Requirement(text) for text in texts] for name, texts in PROJECT["optional-dependencies"].items()}
OWN = next(requirement for requirement in EXTRAS["dev"] if requirement.name == PROJECT["name"])
PINS = {
    canonicalize_name(name): version
    for name, _, version in (
        line.partition("==")
        for line in (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    )
}


def test_what_few_need_is_installed_only_by_its_extra() -> None:
    base = {canonicalize_name(requirement.name) for requirement in BASE}
    for name in ("flash-attn", "vllm", "ray", "sagemaker-train", "fastapi", "mlflow", "reasoning-gym", "jupyterlab"):
        assert name not in base
        assert any(canonicalize_name(r.name) == name for extra in EXTRAS.values() for r in extra), name


def test_nothing_names_a_cpu_build() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text() + (REPOSITORY / "constraints.txt").read_text()
    assert "+cpu" not in text and "--index-url" not in text and "--find-links" not in text


def test_every_base_and_development_dependency_is_pinned_within_its_range() -> None:
    extras = [EXTRAS[name] for name in ("dev", *OWN.extras)]
    for requirement in [*BASE, *(one for extra in extras for one in extra if one is not OWN)]:
        pin = PINS[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(Version(pin)), f"{requirement} does not admit {pin}"


def test_every_extra_has_a_comment_and_a_line_in_the_documentation() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    page = (REPOSITORY / "docs" / "quickstart.md").read_text(encoding="utf-8")
    for name in EXTRAS:
        assert re.search(rf"^#.*\n{name} = ", text, re.MULTILINE), name
        assert f"| `{name}` |" in page, name


def test_trl_is_bound_to_one_minor_version() -> None:
    """rlvr/training/train.py overrides underscore methods of it."""
    trl = next(requirement for requirement in BASE if requirement.name == "trl")
    assert not trl.specifier.contains(Version("1.17.0"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which the wheel is installed, and no checkout is."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in ("rlvr", "rewards", "tasks", "environments"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source / name)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*build, folder / "dist", source], check=True, capture_output=True, text=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # The dependencies come from this environment. A .pth file of it, such as the editable install's, is not followed.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "venv" / "bin" / "python"


def environment_outside() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def run_installed(python: Path, program: str, folder: Path) -> str:
    done = subprocess.run(
        [python, "-c", program], cwd=folder, env=environment_outside(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_installs_no_other_top_level_package(installed: Path, tmp_path: Path) -> None:
    program = (
        "import importlib.util as u, rlvr; "
        "print([bool(u.find_spec(name)) for name in ('rewards', 'tasks', 'environments')], rlvr.__file__)"
    )
    out = run_installed(installed, program, tmp_path)
    assert out.startswith("[False, False, False]") and str(installed.parents[1]) in out


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["rewards", "tasks", "environments"])
def test_plug_ins_of_the_wheel_load_by_name_without_a_checkout(installed: Path, tmp_path: Path, folder: str) -> None:
    names = sorted(path.stem for path in (REPOSITORY / folder).glob("[!_]*.py"))
    program = (
        "from rlvr.scoring.registry import find_plugin\n"
        f"for name in {names[::-1]}:\n"
        f"    assert callable(find_plugin('plug-in', {folder!r}, name, own_class={folder == 'environments'})[0])\n"
        "print('loaded')"
    )
    assert run_installed(installed, program, tmp_path) == "loaded\n"


@pytest.mark.slow
def test_a_reward_server_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    words = ["-m", "rlvr.reward_server", "--rewards", "math_correctness,code_execution", "--port", "0", "--no_key"]
    with subprocess.Popen(
        [installed, *words], cwd=tmp_path, env=environment_outside(), stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        line = next(line for line in server.stdout if "http://" in line)
        address = re.search(r"http://[\d.]+:\d+", line)
        assert address is not None, line
        rewards = [load_reward(RewardSpec("code_execution", where=address[0]))]
        backend = HttpRewardBackend(address[0], rewards, start_timeout_s=60)
        try:
            backend.start()
            assert "sandbox" in " ".join(backend.environment_info())
        finally:
            backend.close()
            server.terminate()
            server.communicate(timeout=300)
    assert server.returncode == 0
