"""Choose the modules to import before the confinement, since a program can open no file.

Most programs need `BASE` only. A program that imports a module of `RICH` runs in a larger interpreter, whose fork costs
more. A program that imports one of `PACKAGES`, if it is installed, runs in a still larger one.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

_BASE_NAMES = """
    abc bisect unicodedata cmath codecs collections collections.abc copy functools heapq io itertools json math
    operator os random re string sys threading time types typing _strptime encodings.ascii encodings.latin_1
    encodings.utf_8_sig linecache traceback
"""
BASE = tuple(_BASE_NAMES.split())
_RICH_NAMES = """
    argparse array ast asyncio base64 binascii builtins calendar cmd codeop colorsys concurrent
    concurrent.futures concurrent.futures.thread contextlib contextvars copyreg csv ctypes dataclasses datetime
    decimal difflib dis enum errno fileinput fnmatch fractions gc getopt gettext graphlib hashlib heapq hmac
    html html.parser inspect importlib importlib.util ipaddress keyword locale logging lzma marshal mmap
    multiprocessing multiprocessing.pool multiprocessing.dummy numbers opcode pathlib pdb pickle platform
    posixpath pprint profile cProfile pstats queue quopri reprlib resource sched secrets select selectors shlex
    shutil signal site socket sqlite3 ssl stat statistics stringprep struct subprocess symtable sysconfig
    tempfile textwrap timeit token tokenize trace tracemalloc unicodedata unittest unittest.mock urllib
    urllib.parse urllib.request uuid warnings weakref xml.etree.ElementTree zipfile zlib bz2 gzip zoneinfo
    http.client email email.message json.tool doctest code bdb abc
"""
RICH = tuple(_RICH_NAMES.split())
PACKAGES = ("numpy", "sortedcontainers")
# Left out without numpy, as all modules that can't be imported.
RPC_SERVER, ASSERT_RUNNER = ("rpc_server",), ("assert_runner", "numpy.testing")

_IMPORTED = re.compile(r"\b(?:import|from)\b([^\n;#]{0,400})|\b(importlib|__import__)\b")
_WORD = re.compile(r"[A-Za-z_]\w*")
_RICH_TOPS = frozenset(name.partition(".")[0] for name in RICH)


@functools.cache
def site(package: str) -> str | None:
    """Return the folder from which a package is imported, or None if it is not installed."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    return str(Path(spec.origin).parent.parent) if spec is not None and spec.origin else None


@functools.lru_cache(maxsize=4096)
def wanted(source: str) -> tuple[str, ...]:
    """Return the modules beyond `BASE` that a program needs, packages last."""
    names: set[str] = set()
    for match in _IMPORTED.finditer(source):
        names.update(_WORD.findall(match[1] or match[2] or ""))
    packages = tuple(package for package in PACKAGES if package in names and site(package))
    rich = bool(packages) or "__import__" in names or names & _RICH_TOPS
    return (*RICH, *packages) if rich else ()
