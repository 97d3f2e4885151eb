"""Add the plug-in folders rewards/ and tasks/ to the wheel, below rlvr/plugins; everything else is in pyproject.toml.

They are not installed as top-level packages: `rewards` and `tasks` are names that other projects use.
"""

from setuptools import find_packages, setup

PLUGINS = ("rewards", "tasks")

setup(
    packages=[*find_packages(include=["rlvr", "rlvr.*"]), *(f"rlvr.plugins.{name}" for name in PLUGINS)],
    package_dir={f"rlvr.plugins.{name}": name for name in PLUGINS},
)
