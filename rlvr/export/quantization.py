"""Types of weights in a GGUF file, and llama.cpp's program that makes the small ones."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

from rlvr.errors import InputError

# By gguf_file.py.
OWN_TYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "q8_0": "Q8_0"}
# By llama-quantize, which mixes several types.
LLAMA_QUANTIZE = ("q4_0", "q4_k_s", "q4_k_m", "q5_k_s", "q5_k_m", "q6_k")


def check_installed() -> None:
    """Check that the extra `gguf` is installed.

    Raises:
        InputError: of kind "package-not-installed".
    """
    for package in ("gguf", "xllamacpp"):
        if importlib.util.find_spec(package) is None:
            install = "Run `pip install -e '.[gguf]' -c constraints.txt`"
            message = f"--to gguf: the package {package} is not installed. {install}."
            raise InputError(message, kind="package-not-installed", key="--to")


def read_quantizations(text: str | None) -> list[str]:
    """Read --quantization: types, separated by commas.

    Raises:
        InputError: an unknown type, or one that needs llama-quantize, which isn't there.
    """
    names = [] if text is None else [name.strip().lower() for name in text.split(",")]
    known = ["q8_0", *LLAMA_QUANTIZE]
    for name in names:
        if name not in known:
            message = f"--quantization: {name or 'nothing'} is none of {', '.join(known)}."
            raise InputError(message, kind="invalid-flag", key="--quantization")
        if name in LLAMA_QUANTIZE and shutil.which("llama-quantize") is None:
            raise InputError(
                f"--quantization {name}: llama-quantize is not on the PATH. Install llama.cpp (brew install llama.cpp, "
                "or https://github.com/ggml-org/llama.cpp/releases), or use q8_0, which needs no program.",
                kind="program-not-found",
                key="--quantization",
            )
    return names


def quantize(source: Path, file: Path, kind: str) -> None:
    """Quantise a GGUF file with llama.cpp's own program.

    Raises:
        InputError: of kind "llama-cpp-failed".
    """
    done = subprocess.run(["llama-quantize", source, file, kind.upper()], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()] or ["no output"]
        message = f"llama-quantize could not write {kind}: {lines[-1].strip()}. Choose another --quantization."
        raise InputError(message, kind="llama-cpp-failed", key="--quantization")
