"""The key of a reward server: read it, or make one (rlvr/scoring/reward_key.py is the client's part)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import tempfile
from pathlib import Path

from rlvr.errors import InputError, writing
from rlvr.scoring.reward_key import VARIABLE, default_file

MIN_LENGTH = 16


def server_key(file: Path | None) -> tuple[str, Path | None]:
    """The key of a server, and the file that it is in: `file`, else GRPO_REWARDS_KEY, else the default file.

    The variable is removed, also from /proc/PID/environ.

    Raises:
        InputError: the file can't be read, or can be read by other users; or the key is too short.
    """
    key, source = take_variable(), VARIABLE
    if file is None and key is None:
        file = default_file()
        _make(file)
    if file is not None:
        source = f"The key file {file}"
        try:
            key, mode = file.read_text(encoding="utf-8").strip(), file.stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{source} can't be read: {error}.", kind="unreadable-file", path=file) from error
        if mode & 0o077:
            raise InputError(f"{source} can be read by other users. Run: chmod 600 {file}", kind="key-not-private")
    assert key is not None
    if len(key) < MIN_LENGTH or not key.isascii() or not key.isprintable() or " " in key:
        fix = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        message = f"{source}: a key needs {MIN_LENGTH} or more ASCII characters, without spaces. Make one: {fix}"
        raise InputError(message, kind="weak-key")
    return key, file


def take_variable() -> str | None:
    """Remove GRPO_REWARDS_KEY from the environment, and from /proc/PID/environ; return the key."""
    key = os.environ.get(VARIABLE)
    if key is None:
        return None
    # unsetenv alone leaves the text in memory.
    getenv = ctypes.CDLL(None).getenv
    getenv.argtypes, getenv.restype = [ctypes.c_char_p], ctypes.c_void_p
    if text := getenv(VARIABLE.encode()):
        ctypes.memset(text, 0, len(os.fsencode(key)))
    del os.environ[VARIABLE]
    return key.strip() or None


def _make(file: Path) -> None:
    """Write a new key, unless there is one. Another server may do the same at this moment."""
    if file.exists():
        return
    with writing(file, f"Set {VARIABLE}, or give --key_file."):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, encoding="utf-8") as temporary:  # of mode 600
            temporary.write(f"{secrets.token_urlsafe(32)}\n")
            temporary.flush()
            with contextlib.suppress(FileExistsError):
                os.link(temporary.name, file)
